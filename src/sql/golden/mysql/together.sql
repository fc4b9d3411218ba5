PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (UNHEX(?),?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

SET @tag_lock_changed=NULL,
    autocommit=0,
    wait_timeout=1,
    @tag_lock_0='d93244e7b08131ef10eda16a07176275',
    @tag_lock_1=42;

EXECUTE tag_lock_0
  USING @tag_lock_0,
    @tag_lock_1;

WITH v(name,position) AS (VALUES ROW(_utf8mb4 x'6163636f756e743a31',0),ROW(_utf8mb4 x'6163636f756e743a32',1))
  SELECT IF(ROW_COUNT()>0,:mark,0),
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(GROUP_CONCAT(IF(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))<=1790000005000000 AND ((t.status=0 OR t.deadline<=UTC_TIMESTAMP(6)) AND (t.wanted_until<=TIMESTAMPADD(SECOND,0,UTC_TIMESTAMP(6)) OR t.deadline<=TIMESTAMPADD(MICROSECOND,IF(t.wanted_until>TIMESTAMPADD(SECOND,120,UTC_TIMESTAMP(6)),-1500000,IF(t.wanted_until>TIMESTAMPADD(SECOND,20,UTC_TIMESTAMP(6)),-400000,-150000)),UTC_TIMESTAMP(6)))),v.position,NULL)),''),
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

SET @tag_lock_granted=IF(LENGTH(@tag_lock_granted)=3,@tag_lock_granted,'');

INSERT INTO t_tag_lock (lock_name,kind,slot) WITH v(name,position) AS (VALUES ROW(_utf8mb4 x'6163636f756e743a31',0),ROW(_utf8mb4 x'6163636f756e743a32',1))
  SELECT v.name,
    1,
    0
  FROM v
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=3 OR FIND_IN_SET(v.position,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.fence=GREATEST(t_tag_lock.fence,@tag_lock_micros)+65536,
    t_tag_lock.count=1,
    t_tag_lock.wanted_until=@tag_lock_now,
    t_tag_lock.description=_utf8mb4 x'6e696768746c79',
    t_tag_lock.held_by=_utf8mb4 x'7765622d312f34373131',
    t_tag_lock.deadline=TIMESTAMPADD(MICROSECOND,30000000,UTC_TIMESTAMP(6)),
    t_tag_lock.status=1,
    t_tag_lock.previous=0,
    t_tag_lock.holder=x'6e45386daeb0b86da1ac4c609001d1e9';

SET completion_type=IF(@tag_lock_decided=:mark AND LENGTH(@tag_lock_granted) IN(0,3) AND ROW_COUNT()=2*(LENGTH(@tag_lock_granted)-LENGTH(REPLACE(@tag_lock_granted,',',''))+(@tag_lock_granted<>'')),'NO_CHAIN','undone');

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

SET wait_timeout=28800;
