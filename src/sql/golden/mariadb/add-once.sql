PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (?,?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

PREPARE tag_lock_1 FROM '
SELECT CONCAT(@tag_lock_rows,',',COALESCE(MAX(CONCAT_WS(' ',?,t.status,t.holder=?,t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),t.previous,t.count,IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),'')),
    ?
  INTO @tag_lock_rows,
    @tag_lock_told
  FROM t_tag_lock t FORCE INDEX(PRIMARY)
  WHERE t.lock_name=?
  AND t.kind=?
  AND t.slot=0';

PREPARE tag_lock_2 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (?,?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE results=CONCAT(VALUES(seq),';',CONCAT(@tag_lock_granted,';',@tag_lock_rows))';

BEGIN NOT ATOMIC
SET @tag_lock_changed=NULL;

EXECUTE tag_lock_0
  USING x'd93244e7b08131ef10eda16a07176275',
    42;

SET @tag_lock_decided=IF(ROW_COUNT()>0,:mark,0),
    @tag_lock_granted='',
    @tag_lock_rows=CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';');

SELECT :mark,
    COUNT(*)
  INTO @tag_lock_once,
    @tag_lock_ids
  FROM t_tag_lock o FORCE INDEX(PRIMARY)
  STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY)
  ON t.lock_name=_utf8mb4 x'7072697a65'
  AND t.kind=2
  AND t.slot=0
  WHERE o.lock_name=_utf8mb4 x'6f726465723a37'
  AND o.kind=3
  AND o.slot=0
  AND (o.status=0 OR o.deadline<=UTC_TIMESTAMP(6))
  FOR UPDATE SKIP LOCKED;

UPDATE (SELECT o.lock_name AS n,t.lock_name AS c,x'0fc89f8ae19394b48debd6353bb9ad33' AS d,CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN 1 AND 9223372036854775807 AS k,IF(CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN 1 AND 9223372036854775807,CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))+(-1),CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))) AS x,IF(CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN 1 AND 9223372036854775807,CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))+(-1),t.count) AS y,IF(CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN 1 AND 9223372036854775807,CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)),t.previous) AS p,IF(CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN 1 AND 9223372036854775807,x'0fc89f8ae19394b48debd6353bb9ad33',t.holder) AS h,IF(CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN 1 AND 9223372036854775807,IF(t.deadline<=UTC_TIMESTAMP(6) OR (0>0 AND t.deadline='9999-12-31 00:00:00'),IF(0>0,TIMESTAMPADD(MICROSECOND,0,UTC_TIMESTAMP(6)),'9999-12-31 00:00:00'),t.deadline),t.deadline) AS e,TIMESTAMPADD(MICROSECOND,86400000000,UTC_TIMESTAMP(6)) AS r FROM t_tag_lock o FORCE INDEX(PRIMARY) STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY) ON t.lock_name=_utf8mb4 x'7072697a65' AND t.kind=2 AND t.slot=0 WHERE o.lock_name=_utf8mb4 x'6f726465723a37' AND o.kind=3 AND o.slot=0 AND (o.status=0 OR o.deadline<=UTC_TIMESTAMP(6)) LIMIT 1000000 FOR UPDATE SKIP LOCKED) k
  STRAIGHT_JOIN t_tag_lock o FORCE INDEX(PRIMARY)
  ON o.lock_name=k.n
  AND o.kind=3
  AND o.slot=0
  STRAIGHT_JOIN t_tag_lock u FORCE INDEX(PRIMARY)
  ON u.lock_name=k.c
  AND u.kind=2
  AND u.slot=0
  SET o.status=1,
    o.holder=k.d,
    o.previous=k.k,
    o.count=k.x,
    o.deadline=k.r,
    o.modify_time=UTC_TIMESTAMP(6),
    u.status=1,
    u.holder=k.h,
    u.previous=k.p,
    u.count=k.y,
    u.deadline=k.e,
    u.modify_time=UTC_TIMESTAMP(6);

SET @tag_lock_changed=LEAST(ROW_COUNT(),2*@tag_lock_ids);

EXECUTE tag_lock_1
  USING 0,
    x'0fc89f8ae19394b48debd6353bb9ad33',
    :mark,
    _utf8mb4 x'6f726465723a37',
    3;

EXECUTE tag_lock_2
  USING x'd93244e7b08131ef10eda16a07176275',
    42;

IF @tag_lock_decided=:mark
  AND @tag_lock_once=:mark
  AND @tag_lock_told=:mark
  AND @tag_lock_changed+ROW_COUNT()=2*@tag_lock_ids+2
  THEN
  SET @tag_lock_mark=:mark;

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

ELSE SIGNAL SQLSTATE '40001'
  SET MYSQL_ERRNO=1213,
    MESSAGE_TEXT='the server undid a part of the packet';

END IF;

END;
