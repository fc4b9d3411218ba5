SET @tag_lock_changed=NULL,
    wait_timeout=1;

INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (x'd93244e7b08131ef10eda16a07176275',42,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time);

SELECT IF(ROW_COUNT()>0,:mark,0),
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(MAX(IF(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))<=1790000005000000 AND ((t.status=0 OR t.deadline<=UTC_TIMESTAMP(6)) AND (1=0 OR t.wanted_until<=UTC_TIMESTAMP(6) OR t.deadline<=TIMESTAMPADD(MICROSECOND,-150000,UTC_TIMESTAMP(6))) OR (t.holder=x'6e45386daeb0b86da1ac4c609001d1e9' AND t.status=1 AND t.deadline>UTC_TIMESTAMP(6))),0,NULL)),''),
    CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';',COALESCE(MAX(CONCAT_WS(' ',0,t.status,t.holder=x'6e45386daeb0b86da1ac4c609001d1e9',t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),t.previous,t.count,IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),''))
  INTO @tag_lock_decided,
    @tag_lock_now,
    @tag_lock_micros,
    @tag_lock_granted,
    @tag_lock_rows
  FROM t_tag_lock t FORCE INDEX(PRIMARY)
  WHERE t.lock_name=_utf8mb4 x'6a6f62'
  AND t.kind=1
  AND t.slot=0
  FOR UPDATE SKIP LOCKED;

INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT _utf8mb4 x'6a6f62',
    1,
    0
  FROM DUAL
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=1 OR FIND_IN_SET(0,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.fence=IF((t_tag_lock.holder=x'6e45386daeb0b86da1ac4c609001d1e9' AND t_tag_lock.status=1 AND t_tag_lock.deadline>@tag_lock_now),t_tag_lock.fence,GREATEST(t_tag_lock.fence,@tag_lock_micros)+65536),
    t_tag_lock.count=IF((t_tag_lock.holder=x'6e45386daeb0b86da1ac4c609001d1e9' AND t_tag_lock.status=1 AND t_tag_lock.deadline>@tag_lock_now),t_tag_lock.count+1,1),
    t_tag_lock.wanted_until=IF((t_tag_lock.holder=x'6e45386daeb0b86da1ac4c609001d1e9' AND t_tag_lock.status=1 AND t_tag_lock.deadline>@tag_lock_now),t_tag_lock.wanted_until,@tag_lock_now),
    t_tag_lock.deadline=IF((t_tag_lock.holder=x'6e45386daeb0b86da1ac4c609001d1e9' AND t_tag_lock.status=1 AND t_tag_lock.deadline>@tag_lock_now),GREATEST(t_tag_lock.deadline,TIMESTAMPADD(MICROSECOND,30000000,UTC_TIMESTAMP(6))),TIMESTAMPADD(MICROSECOND,30000000,UTC_TIMESTAMP(6))),
    t_tag_lock.status=1,
    t_tag_lock.previous=7,
    t_tag_lock.holder=x'6e45386daeb0b86da1ac4c609001d1e9',
    t_tag_lock.description=_utf8mb4 x'6e696768746c79',
    t_tag_lock.held_by=_utf8mb4 x'7765622d312f34373131';

SET @tag_lock_changed=ROW_COUNT();

INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (x'd93244e7b08131ef10eda16a07176275',42,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE results=CONCAT(VALUES(seq),';',CONCAT(@tag_lock_granted,';',@tag_lock_rows));

SET completion_type=IF(@tag_lock_decided=:mark AND @tag_lock_changed+ROW_COUNT()=2*(@tag_lock_granted<>'')+2,'NO_CHAIN','undone');

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

SET wait_timeout=28800;
