PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (UNHEX(?),?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

PREPARE tag_lock_1 FROM '
INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT ?,
    ?,
    0
  FROM DUAL
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=? OR FIND_IN_SET(?,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.deadline=GREATEST(t_tag_lock.deadline,TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6)))';

SET @tag_lock_changed=NULL,
    autocommit=0,
    wait_timeout=1,
    @tag_lock_0='d93244e7b08131ef10eda16a07176275',
    @tag_lock_1=42,
    @tag_lock_2=_utf8mb4 x'6a6f623a34',
    @tag_lock_3=1,
    @tag_lock_4=7,
    @tag_lock_5=3,
    @tag_lock_6=30000000;

EXECUTE tag_lock_0
  USING @tag_lock_0,
    @tag_lock_1;

WITH v(name,position,verb) AS (VALUES ROW(_utf8mb4 x'6a6f623a31',0,1),ROW(_utf8mb4 x'6a6f623a32',1,1),ROW(_utf8mb4 x'6a6f623a33',2,3),ROW(_utf8mb4 x'6a6f623a34',3,5))
  SELECT IF(ROW_COUNT()>0,:mark,0),
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(GROUP_CONCAT(IF(CASE v.verb WHEN 1 THEN TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))<=1790000005000000 AND ((t.status=0 OR t.deadline<=UTC_TIMESTAMP(6)) AND (t.wanted_until<=TIMESTAMPADD(SECOND,0,UTC_TIMESTAMP(6)) OR t.deadline<=TIMESTAMPADD(MICROSECOND,IF(t.wanted_until>TIMESTAMPADD(SECOND,120,UTC_TIMESTAMP(6)),-1500000,IF(t.wanted_until>TIMESTAMPADD(SECOND,20,UTC_TIMESTAMP(6)),-400000,-150000)),UTC_TIMESTAMP(6)))) WHEN 3 THEN t.holder=x'6e45386daeb0b86da1ac4c609001d1e9' AND t.status=1 AND t.fence=1790000000065536 WHEN 5 THEN t.holder=x'6e45386daeb0b86da1ac4c609001d1e9' AND t.status=1 AND t.fence=1790000000065536 AND t.deadline>UTC_TIMESTAMP(6) ELSE 0 END,v.position,NULL)),''),
    CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';',COALESCE(GROUP_CONCAT(CONCAT_WS(' ',v.position,t.status,t.holder=x'6e45386daeb0b86da1ac4c609001d1e9',t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),t.previous,t.count,IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),''))
  INTO @tag_lock_decided,
    @tag_lock_now,
    @tag_lock_micros,
    @tag_lock_granted,
    @tag_lock_rows
  FROM v
  STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY)
  ON t.lock_name=v.name
  AND t.kind=1
  AND t.slot=0
  WHERE 1
  FOR UPDATE SKIP LOCKED;

INSERT INTO t_tag_lock (lock_name,kind,slot) WITH v(name,position,verb) AS (VALUES ROW(_utf8mb4 x'6a6f623a31',0,1),ROW(_utf8mb4 x'6a6f623a32',1,1),ROW(_utf8mb4 x'6a6f623a33',2,3))
  SELECT v.name,
    1,
    0
  FROM v
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=7 OR FIND_IN_SET(v.position,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.fence=CASE v.verb WHEN 1
  THEN GREATEST(t_tag_lock.fence,@tag_lock_micros)+65536 WHEN 3
  THEN 1790000000000001
  ELSE t_tag_lock.fence END,
    t_tag_lock.count=CASE v.verb WHEN 1
  THEN 1 WHEN 3
  THEN 0
  ELSE t_tag_lock.count END,
    t_tag_lock.wanted_until=CASE v.verb WHEN 1
  THEN @tag_lock_now
  ELSE t_tag_lock.wanted_until END,
    t_tag_lock.description=CASE v.verb WHEN 1
  THEN _utf8mb4 x'6e696768746c79'
  ELSE t_tag_lock.description END,
    t_tag_lock.held_by=CASE v.verb WHEN 1
  THEN _utf8mb4 x'7765622d312f34373131'
  ELSE t_tag_lock.held_by END,
    t_tag_lock.deadline=CASE v.verb WHEN 1
  THEN TIMESTAMPADD(MICROSECOND,30000000,UTC_TIMESTAMP(6)) WHEN 3
  THEN TIMESTAMPADD(MICROSECOND,0,UTC_TIMESTAMP(6))
  ELSE t_tag_lock.deadline END,
    t_tag_lock.status=CASE v.verb WHEN 1
  THEN 1 WHEN 3
  THEN IF(0>0,2,0)
  ELSE t_tag_lock.status END,
    t_tag_lock.previous=0,
    t_tag_lock.holder=CASE v.verb WHEN 1
  THEN x'6e45386daeb0b86da1ac4c609001d1e9'
  ELSE t_tag_lock.holder END;

SET @tag_lock_changed=ROW_COUNT();

EXECUTE tag_lock_1
  USING @tag_lock_2,
    @tag_lock_3,
    @tag_lock_4,
    @tag_lock_5,
    @tag_lock_6;

SET completion_type=IF(@tag_lock_decided=:mark AND @tag_lock_changed+ROW_COUNT()=2*(LENGTH(@tag_lock_granted)-LENGTH(REPLACE(@tag_lock_granted,',',''))+(@tag_lock_granted<>'')),'NO_CHAIN','undone');

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

SET wait_timeout=28800;
