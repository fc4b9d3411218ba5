PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (?,?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

PREPARE tag_lock_1 FROM '
SELECT IF(ROW_COUNT()>0,?,0),
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(GROUP_CONCAT(IF(CASE CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) WHEN 1 THEN TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))<=? AND ((t.status=0 OR t.deadline<=UTC_TIMESTAMP(6)) AND (t.wanted_until<=TIMESTAMPADD(SECOND,?,UTC_TIMESTAMP(6)) OR t.deadline<=TIMESTAMPADD(MICROSECOND,IF(t.wanted_until>TIMESTAMPADD(SECOND,120,UTC_TIMESTAMP(6)),-1500000,IF(t.wanted_until>TIMESTAMPADD(SECOND,20,UTC_TIMESTAMP(6)),-400000,-150000)),UTC_TIMESTAMP(6)))) WHEN 3 THEN t.holder=SUBSTR(?,v.seq*?+1,?) AND t.status=1 AND t.fence=CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) WHEN 5 THEN t.holder=SUBSTR(?,v.seq*?+1,?) AND t.status=1 AND t.fence=CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) AND t.deadline>UTC_TIMESTAMP(6) ELSE 0 END,v.seq,NULL)),''),
    CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';',COALESCE(GROUP_CONCAT(CONCAT_WS(' ',v.seq,t.status,t.holder=SUBSTR(?,v.seq*?+1,?),t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),t.previous,t.count,IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),''))
  INTO @tag_lock_decided,
    @tag_lock_now,
    @tag_lock_micros,
    @tag_lock_granted,
    @tag_lock_rows
  FROM seq_0_to_1023 v
  STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY)
  ON t.lock_name=RTRIM(CONVERT(SUBSTR(?,v.seq*?+1,?) USING utf8mb4)) COLLATE utf8mb4_bin
  AND t.kind=?
  AND t.slot=0
  WHERE v.seq<?
  FOR UPDATE SKIP LOCKED';

PREPARE tag_lock_2 FROM '
INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT RTRIM(CONVERT(SUBSTR(?,v.seq*?+1,?) USING utf8mb4)) COLLATE utf8mb4_bin,
    ?,
    0
  FROM seq_0_to_1023 v
  WHERE v.seq<?
  AND (LENGTH(@tag_lock_granted)=? OR FIND_IN_SET(v.seq,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.fence=CASE CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) WHEN 1
  THEN GREATEST(t_tag_lock.fence,@tag_lock_micros)+? WHEN 3
  THEN CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED)
  ELSE t_tag_lock.fence END,
    t_tag_lock.count=CASE CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) WHEN 1
  THEN 1 WHEN 3
  THEN 0
  ELSE t_tag_lock.count END,
    t_tag_lock.wanted_until=CASE CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) WHEN 1
  THEN @tag_lock_now
  ELSE t_tag_lock.wanted_until END,
    t_tag_lock.description=CASE CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) WHEN 1
  THEN ?
  ELSE t_tag_lock.description END,
    t_tag_lock.held_by=CASE CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) WHEN 1
  THEN ?
  ELSE t_tag_lock.held_by END,
    t_tag_lock.deadline=CASE CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) WHEN 1
  THEN TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6)) WHEN 3
  THEN TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6))
  ELSE t_tag_lock.deadline END,
    t_tag_lock.status=CASE CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) WHEN 1
  THEN 1 WHEN 3
  THEN IF(?>0,2,0)
  ELSE t_tag_lock.status END,
    t_tag_lock.previous=?,
    t_tag_lock.holder=CASE CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) WHEN 1
  THEN SUBSTR(?,v.seq*?+1,?)
  ELSE t_tag_lock.holder END';

PREPARE tag_lock_3 FROM '
INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT ?,
    ?,
    0
  FROM DUAL
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=? OR FIND_IN_SET(?,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.deadline=GREATEST(t_tag_lock.deadline,TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6)))';

BEGIN NOT ATOMIC
SET @tag_lock_changed=NULL,
    autocommit=0;

EXECUTE tag_lock_0
  USING x'd93244e7b08131ef10eda16a07176275',
    42;

EXECUTE tag_lock_1
  USING :mark,
    _binary'1135',
    1,
    1,
    1790000005000000,
    0,
    x'6e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e9',
    16,
    16,
    _binary'               0               017900000000655361790000000065536',
    16,
    16,
    x'6e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e9',
    16,
    16,
    _binary'               0               017900000000655361790000000065536',
    16,
    16,
    x'6e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e9',
    16,
    16,
    x'6a6f623a316a6f623a326a6f623a336a6f623a34',
    5,
    5,
    1,
    4;

EXECUTE tag_lock_2
  USING x'6a6f623a316a6f623a326a6f623a33',
    5,
    5,
    1,
    3,
    7,
    _binary'113',
    1,
    1,
    65536,
    _binary'               0               01790000000000001',
    16,
    16,
    _binary'113',
    1,
    1,
    _binary'113',
    1,
    1,
    _binary'113',
    1,
    1,
    _utf8mb4 x'6e696768746c79',
    _binary'113',
    1,
    1,
    _utf8mb4 x'7765622d312f34373131',
    _binary'113',
    1,
    1,
    30000000,
    0,
    _binary'113',
    1,
    1,
    0,
    0,
    _binary'113',
    1,
    1,
    x'6e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e9',
    16,
    16;

SET @tag_lock_changed=ROW_COUNT();

EXECUTE tag_lock_3
  USING _utf8mb4 x'6a6f623a34',
    1,
    7,
    3,
    30000000;

IF @tag_lock_decided=:mark
  AND @tag_lock_changed+ROW_COUNT()=2*(LENGTH(@tag_lock_granted)-LENGTH(REPLACE(@tag_lock_granted,',',''))+(@tag_lock_granted<>''))
  THEN
  SET @tag_lock_mark=:mark;

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

ELSE SIGNAL SQLSTATE '40001'
  SET MYSQL_ERRNO=1213,
    MESSAGE_TEXT='the server undid a part of the packet';

END IF;

END;
