PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (?,?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

PREPARE tag_lock_1 FROM '
SELECT IF(ROW_COUNT()>0,?,0),
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(GROUP_CONCAT(IF(CASE CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) WHEN 3 THEN t.holder=SUBSTR(?,v.seq*?+1,?) AND t.status=1 AND t.fence=CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) WHEN 2 THEN TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))<=? AND ((t.status=0 OR t.deadline<=UTC_TIMESTAMP(6)) AND (t.wanted_until<=TIMESTAMPADD(SECOND,?,UTC_TIMESTAMP(6)) OR t.deadline<=TIMESTAMPADD(MICROSECOND,IF(t.wanted_until>TIMESTAMPADD(SECOND,120,UTC_TIMESTAMP(6)),-1500000,IF(t.wanted_until>TIMESTAMPADD(SECOND,20,UTC_TIMESTAMP(6)),-400000,-150000)),UTC_TIMESTAMP(6))) OR (t.holder=SUBSTR(?,v.seq*?+1,?) AND t.status=1 AND t.deadline>UTC_TIMESTAMP(6))) WHEN 4 THEN t.holder=SUBSTR(?,v.seq*?+1,?) AND t.status=1 AND t.fence=CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) AND t.deadline>UTC_TIMESTAMP(6) AND CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED)>TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) AND CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED)>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t.modify_time) WHEN 6 THEN t.holder=SUBSTR(?,v.seq*?+1,?) AND t.status=1 AND t.fence=CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED) AND t.deadline>UTC_TIMESTAMP(6) AND CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED)>TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) AND CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED)>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t.modify_time) ELSE 0 END,v.seq,NULL)),''),
    CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';',COALESCE(GROUP_CONCAT(CONCAT_WS(' ',v.seq,t.status,t.holder=SUBSTR(?,v.seq*?+1,?),t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),t.previous,IF(CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED)=4,IF(t.stale_until<=UTC_TIMESTAMP(6),LEAST(t.fresh_count,t.count),t.count),t.count),IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),''))
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
  SELECT ?,
    ?,
    0
  FROM DUAL
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=? OR FIND_IN_SET(?,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.fence=?,
    t_tag_lock.deadline=TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6)),
    t_tag_lock.status=IF(?>0,2,0),
    t_tag_lock.count=0,
    t_tag_lock.previous=?';

PREPARE tag_lock_3 FROM '
INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT ?,
    ?,
    0
  FROM DUAL
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=? OR FIND_IN_SET(?,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.fence=IF((t_tag_lock.holder=? AND t_tag_lock.status=1 AND t_tag_lock.deadline>@tag_lock_now),t_tag_lock.fence,GREATEST(t_tag_lock.fence,@tag_lock_micros)+?),
    t_tag_lock.count=IF((t_tag_lock.holder=? AND t_tag_lock.status=1 AND t_tag_lock.deadline>@tag_lock_now),IF(t_tag_lock.stale_until<=@tag_lock_now,LEAST(t_tag_lock.fresh_count,t_tag_lock.count),t_tag_lock.count)+1,1),
    t_tag_lock.fresh_count=IF((t_tag_lock.holder=? AND t_tag_lock.status=1 AND t_tag_lock.deadline>@tag_lock_now),IF(t_tag_lock.stale_until<=@tag_lock_now,0,t_tag_lock.fresh_count)+IF(t_tag_lock.stale_until<=@tag_lock_now,@tag_lock_micros+?>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t_tag_lock.deadline),@tag_lock_micros+?>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t_tag_lock.stale_until) OR t_tag_lock.deadline>t_tag_lock.stale_until),1),
    t_tag_lock.stale_until=IF((t_tag_lock.holder=? AND t_tag_lock.status=1 AND t_tag_lock.deadline>@tag_lock_now),IF(t_tag_lock.stale_until<=@tag_lock_now,t_tag_lock.deadline,t_tag_lock.stale_until),@tag_lock_now),
    t_tag_lock.wanted_until=IF((t_tag_lock.holder=? AND t_tag_lock.status=1 AND t_tag_lock.deadline>@tag_lock_now),t_tag_lock.wanted_until,@tag_lock_now),
    t_tag_lock.description=IF((t_tag_lock.holder=? AND t_tag_lock.status=1 AND t_tag_lock.deadline>@tag_lock_now),t_tag_lock.description,?),
    t_tag_lock.held_by=IF((t_tag_lock.holder=? AND t_tag_lock.status=1 AND t_tag_lock.deadline>@tag_lock_now),t_tag_lock.held_by,?),
    t_tag_lock.deadline=IF((t_tag_lock.holder=? AND t_tag_lock.status=1 AND t_tag_lock.deadline>@tag_lock_now),GREATEST(t_tag_lock.deadline,TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6))),TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6))),
    t_tag_lock.status=1,
    t_tag_lock.previous=?,
    t_tag_lock.holder=?';

PREPARE tag_lock_4 FROM '
INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT ?,
    ?,
    0
  FROM DUAL
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=? OR FIND_IN_SET(?,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.fence=IF(IF(t_tag_lock.stale_until<=@tag_lock_now,LEAST(t_tag_lock.fresh_count,t_tag_lock.count),t_tag_lock.count)>1,t_tag_lock.fence,?),
    t_tag_lock.deadline=IF(IF(t_tag_lock.stale_until<=@tag_lock_now,LEAST(t_tag_lock.fresh_count,t_tag_lock.count),t_tag_lock.count)>1,IF(LEAST(t_tag_lock.fresh_count,t_tag_lock.count)-(?>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t_tag_lock.stale_until))>0,t_tag_lock.deadline,t_tag_lock.stale_until),TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6))),
    t_tag_lock.status=IF(IF(t_tag_lock.stale_until<=@tag_lock_now,LEAST(t_tag_lock.fresh_count,t_tag_lock.count),t_tag_lock.count)>1,1,IF(?>0,2,0)),
    t_tag_lock.fresh_count=LEAST(LEAST(t_tag_lock.fresh_count,t_tag_lock.count)-(?>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t_tag_lock.stale_until)),t_tag_lock.count-1),
    t_tag_lock.count=t_tag_lock.count-1,
    t_tag_lock.previous=?';

PREPARE tag_lock_5 FROM '
INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT RTRIM(CONVERT(SUBSTR(?,v.seq*?+1,?) USING utf8mb4)) COLLATE utf8mb4_bin,
    ?,
    0
  FROM seq_0_to_1023 v
  WHERE v.seq<?
  AND (LENGTH(@tag_lock_granted)=? OR FIND_IN_SET(CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED),@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.count=IF(t_tag_lock.stale_until<=@tag_lock_now,LEAST(t_tag_lock.fresh_count,t_tag_lock.count),t_tag_lock.count),
    t_tag_lock.fresh_count=IF(t_tag_lock.stale_until<=@tag_lock_now,0,t_tag_lock.fresh_count)+IF(t_tag_lock.stale_until<=@tag_lock_now,@tag_lock_micros+?>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t_tag_lock.deadline),NOT (CAST(SUBSTR(?,v.seq*?+1,?) AS SIGNED)>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t_tag_lock.stale_until)) AND (@tag_lock_micros+?>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t_tag_lock.stale_until) OR t_tag_lock.deadline>t_tag_lock.stale_until)),
    t_tag_lock.stale_until=IF(t_tag_lock.stale_until<=@tag_lock_now,t_tag_lock.deadline,t_tag_lock.stale_until),
    t_tag_lock.deadline=GREATEST(t_tag_lock.deadline,TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6)))';

PREPARE tag_lock_6 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (?,?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE results=CONCAT(VALUES(seq),';',CONCAT(@tag_lock_granted,';',@tag_lock_rows))';

BEGIN NOT ATOMIC
SET @tag_lock_changed=NULL,
    autocommit=0;

EXECUTE tag_lock_0
  USING x'd93244e7b08131ef10eda16a07176275',
    42;

EXECUTE tag_lock_1
  USING :mark,
    _binary'24366',
    1,
    1,
    x'6e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e9',
    16,
    16,
    _binary'               01790000000065536179000000006553617900000000655361790000000065536',
    16,
    16,
    1790000005000000,
    0,
    x'6e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e9',
    16,
    16,
    x'6e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e9',
    16,
    16,
    _binary'               01790000000065536179000000006553617900000000655361790000000065536',
    16,
    16,
    _binary'               01790000030000000               017900000300000001790000031000000',
    16,
    16,
    _binary'               01790000030000000               017900000300000001790000031000000',
    16,
    16,
    x'6e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e9',
    16,
    16,
    _binary'               01790000000065536179000000006553617900000000655361790000000065536',
    16,
    16,
    _binary'               01790000030000000               017900000300000001790000031000000',
    16,
    16,
    _binary'               01790000030000000               017900000300000001790000031000000',
    16,
    16,
    x'6e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e96e45386daeb0b86da1ac4c609001d1e9',
    16,
    16,
    _binary'24366',
    1,
    1,
    x'6a6f623a316a6f623a326a6f623a336a6f623a346a6f623a35',
    5,
    5,
    1,
    5;

EXECUTE tag_lock_2
  USING _utf8mb4 x'6a6f623a33',
    1,
    9,
    2,
    1790000000000001,
    0,
    0,
    0;

SET @tag_lock_changed=ROW_COUNT();

EXECUTE tag_lock_3
  USING _utf8mb4 x'6a6f623a31',
    1,
    9,
    0,
    x'6e45386daeb0b86da1ac4c609001d1e9',
    65536,
    x'6e45386daeb0b86da1ac4c609001d1e9',
    x'6e45386daeb0b86da1ac4c609001d1e9',
    30000000,
    30000000,
    x'6e45386daeb0b86da1ac4c609001d1e9',
    x'6e45386daeb0b86da1ac4c609001d1e9',
    x'6e45386daeb0b86da1ac4c609001d1e9',
    _utf8mb4 x'6e696768746c79',
    x'6e45386daeb0b86da1ac4c609001d1e9',
    _utf8mb4 x'7765622d312f34373131',
    x'6e45386daeb0b86da1ac4c609001d1e9',
    30000000,
    30000000,
    7,
    x'6e45386daeb0b86da1ac4c609001d1e9';

SET @tag_lock_changed=@tag_lock_changed+ROW_COUNT();

EXECUTE tag_lock_4
  USING _utf8mb4 x'6a6f623a32',
    1,
    9,
    1,
    1790000000000001,
    1790000030000000,
    0,
    0,
    1790000030000000,
    8;

SET @tag_lock_changed=@tag_lock_changed+ROW_COUNT();

EXECUTE tag_lock_5
  USING x'6a6f623a346a6f623a35',
    5,
    5,
    1,
    2,
    9,
    _binary'34',
    1,
    1,
    30000000,
    _binary'17900000300000001790000031000000',
    16,
    16,
    30000000,
    30000000;

SET @tag_lock_changed=@tag_lock_changed+ROW_COUNT();

EXECUTE tag_lock_6
  USING x'd93244e7b08131ef10eda16a07176275',
    42;

IF @tag_lock_decided=:mark
  AND @tag_lock_changed+ROW_COUNT()=2*(LENGTH(@tag_lock_granted)-LENGTH(REPLACE(@tag_lock_granted,',',''))+(@tag_lock_granted<>''))+2
  THEN
  SET @tag_lock_mark=:mark;

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

ELSE SIGNAL SQLSTATE '40001'
  SET MYSQL_ERRNO=1213,
    MESSAGE_TEXT='the server undid a part of the packet';

END IF;

END;
