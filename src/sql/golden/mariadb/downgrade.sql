PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (?,?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

PREPARE tag_lock_1 FROM '
INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT ?,
    ?,
    ?
  FROM DUAL
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=? OR FIND_IN_SET(?,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.fence=GREATEST(t_tag_lock.fence,@tag_lock_fence,@tag_lock_micros)+1,
    t_tag_lock.count=0,
    t_tag_lock.previous=@tag_lock_micros,
    t_tag_lock.description='',
    t_tag_lock.held_by='',
    t_tag_lock.deadline='9999-12-31 00:00:00',
    t_tag_lock.holder='',
    t_tag_lock.status=3';

PREPARE tag_lock_2 FROM '
INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT ?,
    ?,
    ?
  FROM DUAL
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=? OR FIND_IN_SET(?,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.fence=GREATEST(t_tag_lock.fence,@tag_lock_fence,@tag_lock_micros)+1,
    t_tag_lock.count=1,
    t_tag_lock.description=?,
    t_tag_lock.held_by=?,
    t_tag_lock.deadline=TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6)),
    t_tag_lock.status=1,
    t_tag_lock.previous=0,
    t_tag_lock.holder=?';

BEGIN NOT ATOMIC
SET @tag_lock_changed=NULL,
    autocommit=0;

EXECUTE tag_lock_0
  USING x'd93244e7b08131ef10eda16a07176275',
    42;

SELECT IF(ROW_COUNT()>0,:mark,0),
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(GROUP_CONCAT(IF(CASE CAST(SUBSTR(_binary'1516',v.seq*2+1,2) AS SIGNED) WHEN 15 THEN TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))<=1790000005000000 AND t.holder=SUBSTR(x'b93006774cbdd4b299389a03ac3d88c36e45386daeb0b86da1ac4c609001d1e9',v.seq*16+1,16) AND t.status=1 AND t.fence=CAST(SUBSTR(_binary'1790000000065536               0',v.seq*16+1,16) AS SIGNED) AND t.deadline>UTC_TIMESTAMP(6) WHEN 16 THEN t.status=0 OR t.deadline<=UTC_TIMESTAMP(6) ELSE 0 END,v.seq,NULL)),''),
    CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';',COALESCE(GROUP_CONCAT(CONCAT_WS(' ',v.seq,t.status,t.holder=SUBSTR(x'b93006774cbdd4b299389a03ac3d88c36e45386daeb0b86da1ac4c609001d1e9',v.seq*16+1,16),t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),t.previous,t.count,IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),'')),
    COALESCE(MAX(t.fence),0)
  INTO @tag_lock_decided,
    @tag_lock_now,
    @tag_lock_micros,
    @tag_lock_granted,
    @tag_lock_rows,
    @tag_lock_fence
  FROM seq_0_to_1023 v
  STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY)
  ON t.lock_name=RTRIM(CONVERT(SUBSTR(x'6a6f626a6f62',v.seq*3+1,3) USING utf8mb4)) COLLATE utf8mb4_bin
  AND t.kind=CAST(SUBSTR(_binary'16',v.seq*1+1,1) AS SIGNED)
  AND t.slot=CAST(SUBSTR(_binary'   04711',v.seq*4+1,4) AS SIGNED)
  WHERE v.seq<2
  FOR UPDATE SKIP LOCKED;

SET @tag_lock_granted=IF(LENGTH(@tag_lock_granted)=3,@tag_lock_granted,'');

EXECUTE tag_lock_1
  USING _utf8mb4 x'6a6f62',
    1,
    0,
    3,
    0;

SET @tag_lock_changed=ROW_COUNT();

EXECUTE tag_lock_2
  USING _utf8mb4 x'6a6f62',
    6,
    4711,
    3,
    1,
    _utf8mb4 x'6e696768746c79',
    _utf8mb4 x'7765622d312f34373131',
    30000000,
    x'6e45386daeb0b86da1ac4c609001d1e9';

IF @tag_lock_decided=:mark
  AND LENGTH(@tag_lock_granted) IN(0,3)
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
