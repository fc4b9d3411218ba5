PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (?,?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

PREPARE tag_lock_1 FROM '
SELECT IF(ROW_COUNT()>0,?,0),
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(MAX(IF(t.holder=? AND t.status=1 AND t.fence=? AND t.deadline>UTC_TIMESTAMP(6) AND ?>TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) AND ?>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t.modify_time),?,NULL)),''),
    CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';',COALESCE(MAX(CONCAT_WS(' ',?,t.status,t.holder=?,t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),t.previous,t.count,IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),''))
  INTO @tag_lock_decided,
    @tag_lock_now,
    @tag_lock_micros,
    @tag_lock_granted,
    @tag_lock_rows
  FROM t_tag_lock t FORCE INDEX(PRIMARY)
  WHERE t.lock_name=?
  AND t.kind=?
  AND t.slot=0
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
    t_tag_lock.count=IF(t_tag_lock.stale_until<=@tag_lock_now,LEAST(t_tag_lock.fresh_count,t_tag_lock.count),t_tag_lock.count),
    t_tag_lock.fresh_count=IF(t_tag_lock.stale_until<=@tag_lock_now,0,t_tag_lock.fresh_count)+IF(t_tag_lock.stale_until<=@tag_lock_now,@tag_lock_micros+?>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t_tag_lock.deadline),NOT (?>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t_tag_lock.stale_until)) AND (@tag_lock_micros+?>TIMESTAMPDIFF(MICROSECOND,'1970-01-01',t_tag_lock.stale_until) OR t_tag_lock.deadline>t_tag_lock.stale_until)),
    t_tag_lock.stale_until=IF(t_tag_lock.stale_until<=@tag_lock_now,t_tag_lock.deadline,t_tag_lock.stale_until),
    t_tag_lock.deadline=GREATEST(t_tag_lock.deadline,TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6)))';

BEGIN NOT ATOMIC
SET @tag_lock_changed=NULL,
    autocommit=0;

EXECUTE tag_lock_0
  USING x'd93244e7b08131ef10eda16a07176275',
    42;

EXECUTE tag_lock_1
  USING :mark,
    x'6e45386daeb0b86da1ac4c609001d1e9',
    1790000000065536,
    1790000030000000,
    1790000030000000,
    0,
    0,
    x'6e45386daeb0b86da1ac4c609001d1e9',
    _utf8mb4 x'6a6f62',
    1;

EXECUTE tag_lock_2
  USING _utf8mb4 x'6a6f62',
    1,
    1,
    0,
    30000000,
    1790000030000000,
    30000000,
    30000000;

IF @tag_lock_decided=:mark
  AND ROW_COUNT()=2*(@tag_lock_granted<>'')
  THEN
  SET @tag_lock_mark=:mark;

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

ELSE SIGNAL SQLSTATE '40001'
  SET MYSQL_ERRNO=1213,
    MESSAGE_TEXT='the server undid a part of the packet';

END IF;

END;
