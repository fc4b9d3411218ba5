PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (?,?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

PREPARE tag_lock_1 FROM '
SELECT IF(ROW_COUNT()>0,?,0),
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(MAX(IF(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))<=? AND ((t.status=0 OR t.deadline<=UTC_TIMESTAMP(6)) AND (t.wanted_until<=TIMESTAMPADD(SECOND,?,UTC_TIMESTAMP(6)) OR t.deadline<=TIMESTAMPADD(MICROSECOND,IF(t.wanted_until>TIMESTAMPADD(SECOND,120,UTC_TIMESTAMP(6)),-1500000,IF(t.wanted_until>TIMESTAMPADD(SECOND,20,UTC_TIMESTAMP(6)),-400000,-150000)),UTC_TIMESTAMP(6)))),?,NULL)),''),
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
  FOR UPDATE';

PREPARE tag_lock_2 FROM '
INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT ?,
    ?,
    0
  FROM DUAL
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=? OR FIND_IN_SET(?,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.fence=GREATEST(t_tag_lock.fence,@tag_lock_micros)+?,
    t_tag_lock.count=1,
    t_tag_lock.wanted_until=@tag_lock_now,
    t_tag_lock.description=?,
    t_tag_lock.held_by=?,
    t_tag_lock.deadline=TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6)),
    t_tag_lock.status=1,
    t_tag_lock.previous=?,
    t_tag_lock.holder=?';

BEGIN NOT ATOMIC
SET @tag_lock_changed=NULL,
    autocommit=0;

EXECUTE tag_lock_0
  USING x'd93244e7b08131ef10eda16a07176275',
    42;

EXECUTE tag_lock_1
  USING :mark,
    1790000005000000,
    0,
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
    65536,
    _utf8mb4 x'6e696768746c79',
    _utf8mb4 x'7765622d312f34373131',
    30000000,
    0,
    x'6e45386daeb0b86da1ac4c609001d1e9';

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
