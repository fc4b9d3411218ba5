PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (?,?,UTC_TIMESTAMP(6))
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
  FOR UPDATE SKIP LOCKED';

PREPARE tag_lock_2 FROM '
SELECT ?,
    COUNT(*),
    COALESCE(SUM(t.deadline>UTC_TIMESTAMP(6)),0)
  INTO @tag_lock_reached,
    @tag_lock_had,
    @tag_lock_running
  FROM t_tag_lock t FORCE INDEX(PRIMARY)
  WHERE t.lock_name=?
  AND t.kind=6
  AND t.status<>0
  FOR UPDATE SKIP LOCKED';

PREPARE tag_lock_3 FROM '
SELECT ?,
    COUNT(*)
  INTO @tag_lock_counted,
    @tag_lock_shared
  FROM t_tag_lock t FORCE INDEX(PRIMARY)
  WHERE t.lock_name=?
  AND t.kind=6
  AND t.status<>0';

PREPARE tag_lock_4 FROM '
SELECT ?,
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(MAX(IF(t.status=3 AND @tag_lock_door=1 AND @tag_lock_had=@tag_lock_shared,?,NULL)),''),
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

PREPARE tag_lock_5 FROM '
INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT ?,
    ?,
    0
  FROM DUAL
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=? OR FIND_IN_SET(?,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.count=0,
    t_tag_lock.deadline=@tag_lock_now,
    t_tag_lock.status=0';

PREPARE tag_lock_6 FROM '
INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT s.lock_name,
    s.kind,
    s.slot
  FROM t_tag_lock s FORCE INDEX(PRIMARY)
  WHERE s.lock_name=?
  AND s.kind=6
  AND s.status<>0
  AND @tag_lock_granted<>''
  AND @tag_lock_door=1
  AND @tag_lock_had=@tag_lock_shared
  ON DUPLICATE KEY UPDATE t_tag_lock.status=0,
    t_tag_lock.holder=';

PREPARE tag_lock_7 FROM '
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
    _utf8mb4 x'6a6f62';

EXECUTE tag_lock_2
  USING :mark,
    _utf8mb4 x'6a6f62';

EXECUTE tag_lock_3
  USING :mark,
    _utf8mb4 x'6a6f62';

EXECUTE tag_lock_4
  USING :mark,
    0,
    0,
    x'00000000000000000000000000000000',
    _utf8mb4 x'6a6f62',
    1;

EXECUTE tag_lock_5
  USING _utf8mb4 x'6a6f62',
    1,
    1,
    0;

SET @tag_lock_changed=ROW_COUNT();

EXECUTE tag_lock_6
  USING _utf8mb4 x'6a6f62';

SET @tag_lock_changed=@tag_lock_changed+ROW_COUNT();

EXECUTE tag_lock_7
  USING x'd93244e7b08131ef10eda16a07176275',
    42;

IF @tag_lock_shut=:mark
  AND @tag_lock_reached=:mark
  AND @tag_lock_counted=:mark
  AND @tag_lock_decided=:mark
  AND @tag_lock_changed+ROW_COUNT()=2*(@tag_lock_granted<>'')+2*@tag_lock_had*(@tag_lock_granted<>'' AND @tag_lock_door=1 AND @tag_lock_had=@tag_lock_shared)+2
  THEN
  SET @tag_lock_mark=:mark;

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

ELSE SIGNAL SQLSTATE '40001'
  SET MYSQL_ERRNO=1213,
    MESSAGE_TEXT='the server undid a part of the packet';

END IF;

END;
