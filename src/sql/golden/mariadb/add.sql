PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (?,?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

PREPARE tag_lock_1 FROM '
SELECT IF(ROW_COUNT()>0,?,0),
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(MAX(IF(CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN ? AND ?,?,NULL)),''),
    CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';',COALESCE(MAX(CONCAT_WS(' ',?,t.status,t.holder=?,t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),IF(?=9 AND CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN ? AND ?,CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)),t.previous),IF(?=9 AND CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN ? AND ?,?*CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))+CAST(? AS DECIMAL(30,0))*IF(?=1,1,LEAST(ABS(CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))-?),?*ABS(CAST(? AS DECIMAL(30,0)))) DIV ABS(CAST(? AS DECIMAL(30,0)))),t.count),IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),''))
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
    t_tag_lock.previous=CAST(IF(t_tag_lock.deadline<=@tag_lock_now,0,t_tag_lock.count) AS DECIMAL(30,0)),
    t_tag_lock.count=?*CAST(IF(t_tag_lock.deadline<=@tag_lock_now,0,t_tag_lock.count) AS DECIMAL(30,0))+CAST(? AS DECIMAL(30,0))*IF(?=1,1,LEAST(ABS(CAST(IF(t_tag_lock.deadline<=@tag_lock_now,0,t_tag_lock.count) AS DECIMAL(30,0))-?),?*ABS(CAST(? AS DECIMAL(30,0)))) DIV ABS(CAST(? AS DECIMAL(30,0)))),
    t_tag_lock.deadline=IF(?=1 OR t_tag_lock.deadline<=@tag_lock_now OR (?>0 AND t_tag_lock.deadline='9999-12-31 00:00:00'),IF(?>0,TIMESTAMPADD(MICROSECOND,?,UTC_TIMESTAMP(6)),'9999-12-31 00:00:00'),t_tag_lock.deadline),
    t_tag_lock.status=1,
    t_tag_lock.holder=?';

PREPARE tag_lock_3 FROM '
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
    1,
    9223372036854775807,
    0,
    0,
    x'12ea12eace7d655f471ce55e34f89b1b',
    9,
    1,
    9223372036854775807,
    9,
    1,
    9223372036854775807,
    1,
    -1,
    3,
    0,
    3,
    -1,
    -1,
    _utf8mb4 x'7072697a65',
    2;

EXECUTE tag_lock_2
  USING _utf8mb4 x'7072697a65',
    2,
    1,
    0,
    1,
    -1,
    3,
    0,
    3,
    -1,
    -1,
    0,
    0,
    0,
    0,
    x'12ea12eace7d655f471ce55e34f89b1b';

SET @tag_lock_changed=ROW_COUNT();

EXECUTE tag_lock_3
  USING x'd93244e7b08131ef10eda16a07176275',
    42;

IF @tag_lock_decided=:mark
  AND @tag_lock_changed+ROW_COUNT()=2*(@tag_lock_granted<>'')+2
  THEN
  SET @tag_lock_mark=:mark;

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

ELSE SIGNAL SQLSTATE '40001'
  SET MYSQL_ERRNO=1213,
    MESSAGE_TEXT='the server undid a part of the packet';

END IF;

END;
