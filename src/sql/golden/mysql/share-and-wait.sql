PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (UNHEX(?),?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

PREPARE tag_lock_1 FROM '
SELECT IF(ROW_COUNT()>0,?,0),
    COUNT(*)
  INTO @tag_lock_shut,
    @tag_lock_door
  FROM t_tag_lock t FORCE INDEX(PRIMARY)
  WHERE t.lock_name=?
  AND t.kind=1
  AND t.slot=0
  FOR UPDATE';

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
    t_tag_lock.count=IF(t_tag_lock.status=3,t_tag_lock.count,0),
    t_tag_lock.previous=IF(t_tag_lock.status=3,t_tag_lock.previous,@tag_lock_micros),
    t_tag_lock.wanted_until=IF(t_tag_lock.status=3,t_tag_lock.wanted_until,@tag_lock_now),
    t_tag_lock.description='',
    t_tag_lock.held_by='',
    t_tag_lock.deadline='9999-12-31 00:00:00',
    t_tag_lock.holder='',
    t_tag_lock.status=3';

PREPARE tag_lock_3 FROM '
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
    t_tag_lock.holder=UNHEX(?)';

SET @tag_lock_changed=NULL,
    autocommit=0,
    wait_timeout=1,
    @tag_lock_0='d93244e7b08131ef10eda16a07176275',
    @tag_lock_1=42,
    @tag_lock_2=:mark,
    @tag_lock_3=_utf8mb4 x'6a6f62',
    @tag_lock_4=1,
    @tag_lock_5=0,
    @tag_lock_6=3,
    @tag_lock_7=6,
    @tag_lock_8=4711,
    @tag_lock_9=_utf8mb4 x'6e696768746c79',
    @tag_lock_10=_utf8mb4 x'7765622d312f34373131',
    @tag_lock_11=30000000,
    @tag_lock_12='6e45386daeb0b86da1ac4c609001d1e9';

EXECUTE tag_lock_0
  USING @tag_lock_0,
    @tag_lock_1;

EXECUTE tag_lock_1
  USING @tag_lock_2,
    @tag_lock_3;

WITH v(kind,slot,position,verb,token) AS (VALUES ROW(1,0,0,14,x'00000000000000000000000000000000'),ROW(6,4711,1,16,x'6e45386daeb0b86da1ac4c609001d1e9'))
  SELECT :mark,
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(GROUP_CONCAT(IF(CASE v.verb WHEN 14 THEN TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))<=1790000005000000 AND (t.status=3 AND ((t.count<=TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) OR t.count>TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))+2000000) OR t.previous>TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))-120000 AND t.previous<=TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))+1000000) OR (t.status=0 OR t.deadline<=UTC_TIMESTAMP(6)) AND (t.wanted_until<=TIMESTAMPADD(SECOND,0,UTC_TIMESTAMP(6)) OR t.deadline<=TIMESTAMPADD(MICROSECOND,IF(t.wanted_until>TIMESTAMPADD(SECOND,120,UTC_TIMESTAMP(6)),-1500000,IF(t.wanted_until>TIMESTAMPADD(SECOND,20,UTC_TIMESTAMP(6)),-400000,-150000)),UTC_TIMESTAMP(6))) AND (t.count<=TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) OR t.count>TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))+2000000)) WHEN 16 THEN t.status=0 OR t.deadline<=UTC_TIMESTAMP(6) ELSE 0 END,v.position,NULL)),''),
    CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';',COALESCE(GROUP_CONCAT(CONCAT_WS(' ',v.position,t.status,t.holder=v.token,t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),t.previous,t.count,IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),'')),
    COALESCE(MAX(t.fence),0)
  INTO @tag_lock_decided,
    @tag_lock_now,
    @tag_lock_micros,
    @tag_lock_granted,
    @tag_lock_rows,
    @tag_lock_fence
  FROM v
  STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY)
  ON t.lock_name=_utf8mb4 x'6a6f62'
  AND t.kind=v.kind
  AND t.slot=v.slot
  WHERE 1
  FOR UPDATE SKIP LOCKED;

SET @tag_lock_granted=IF(LENGTH(@tag_lock_granted)=3,@tag_lock_granted,'');

EXECUTE tag_lock_2
  USING @tag_lock_3,
    @tag_lock_4,
    @tag_lock_5,
    @tag_lock_6,
    @tag_lock_5;

SET @tag_lock_changed=ROW_COUNT();

EXECUTE tag_lock_3
  USING @tag_lock_3,
    @tag_lock_7,
    @tag_lock_8,
    @tag_lock_6,
    @tag_lock_4,
    @tag_lock_9,
    @tag_lock_10,
    @tag_lock_11,
    @tag_lock_12;

SET completion_type=IF(@tag_lock_shut=:mark AND @tag_lock_decided=:mark AND LENGTH(@tag_lock_granted) IN(0,3) AND @tag_lock_changed+ROW_COUNT()=2*(LENGTH(@tag_lock_granted)-LENGTH(REPLACE(@tag_lock_granted,',',''))+(@tag_lock_granted<>'')),'NO_CHAIN','undone');

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

SET wait_timeout=28800;
