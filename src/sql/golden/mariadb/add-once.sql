PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (?,?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

PREPARE tag_lock_1 FROM '
SELECT IF(ROW_COUNT()>0,?,0),
    COALESCE(GROUP_CONCAT(t.lock_name),'')
  INTO @tag_lock_tried,
    @tag_lock_stripes
  FROM seq_0_to_1023 v
  STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY)
  ON t.lock_name=RTRIM(CONVERT(SUBSTR(?,v.seq*?+1,?) USING utf8mb4)) COLLATE utf8mb4_bin
  AND t.kind=0
  AND t.slot=0
  WHERE v.seq<?
  FOR UPDATE SKIP LOCKED';

PREPARE tag_lock_2 FROM '
SELECT CONCAT(@tag_lock_rows,',',COALESCE(MAX(CONCAT_WS(' ',?,t.status,t.holder=?,t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),t.previous,t.count,IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),'')),
    ?
  INTO @tag_lock_rows,
    @tag_lock_told
  FROM t_tag_lock t FORCE INDEX(PRIMARY)
  WHERE t.lock_name=?
  AND t.kind=?
  AND t.slot=0';

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
    x'63656e7465725f6c6f636b5f323063656e7465725f6c6f636b5f3733',
    14,
    14,
    2;

INSERT INTO t_tag_lock (lock_name,kind,slot,fence,create_time,modify_time)
  SELECT RTRIM(CONVERT(SUBSTR(x'6f726465723a377072697a652020',v.seq*7+1,7) USING utf8mb4)) COLLATE utf8mb4_bin,
    CAST(SUBSTR(_binary'32',v.seq*1+1,1) AS SIGNED),
    0,
    s.count,
    UTC_TIMESTAMP(6),
    UTC_TIMESTAMP(6)
  FROM seq_0_to_1023 v
  STRAIGHT_JOIN t_tag_lock s FORCE INDEX(PRIMARY)
  ON s.lock_name=RTRIM(CONVERT(SUBSTR(x'63656e7465725f6c6f636b5f323063656e7465725f6c6f636b5f3733',v.seq*14+1,14) USING utf8mb4)) COLLATE utf8mb4_bin
  AND s.kind=0
  AND s.slot=0
  LEFT JOIN t_tag_lock t FORCE INDEX(PRIMARY)
  ON t.lock_name=RTRIM(CONVERT(SUBSTR(x'6f726465723a377072697a652020',v.seq*7+1,7) USING utf8mb4)) COLLATE utf8mb4_bin
  AND t.kind=CAST(SUBSTR(_binary'32',v.seq*1+1,1) AS SIGNED)
  AND t.slot=0
  WHERE v.seq<2
  AND t.lock_name IS NULL
  AND FIND_IN_SET(RTRIM(CONVERT(SUBSTR(x'63656e7465725f6c6f636b5f323063656e7465725f6c6f636b5f3733',v.seq*14+1,14) USING utf8mb4)) COLLATE utf8mb4_bin,@tag_lock_stripes);

SET @tag_lock_decided=:mark,
    @tag_lock_granted='',
    @tag_lock_rows=CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';');

SELECT :mark,
    COUNT(*)+COUNT(DISTINCT t.lock_name),
    MAX(0)
  INTO @tag_lock_once,
    @tag_lock_changes,
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

UPDATE (SELECT i.*,i.r<=i.a AS k,IF(i.r<=i.a,i.x+i.r*i.s,i.x+i.a*i.s) AS v FROM (SELECT j.*,IF(j.x BETWEEN j.l AND j.h,LEAST(j.m,CASE WHEN j.s>0 THEN LEAST(j.h-j.x,j.m*j.s) DIV j.s+1 WHEN j.s<0 THEN LEAST(j.x-j.l,-j.m*j.s) DIV -j.s+1 ELSE j.m END),0) AS a FROM (SELECT q.*,ROW_NUMBER() OVER (PARTITION BY q.c ORDER BY q.i) AS r,COUNT(*) OVER (PARTITION BY q.c) AS m FROM (SELECT 0 AS i,o.lock_name AS n,t.lock_name AS c,x'0fc89f8ae19394b48debd6353bb9ad33' AS d,CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) AS x,CAST((-1) AS DECIMAL(30,0)) AS s,CAST(1 AS DECIMAL(30,0)) AS l,CAST(9223372036854775807 AS DECIMAL(30,0)) AS h,IF(t.deadline<=UTC_TIMESTAMP(6) OR (0>0 AND t.deadline='9999-12-31 00:00:00'),IF(0>0,TIMESTAMPADD(MICROSECOND,0,UTC_TIMESTAMP(6)),'9999-12-31 00:00:00'),t.deadline) AS e,TIMESTAMPADD(MICROSECOND,86400000000,UTC_TIMESTAMP(6)) AS y FROM t_tag_lock o FORCE INDEX(PRIMARY) STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY) ON t.lock_name=_utf8mb4 x'7072697a65' AND t.kind=2 AND t.slot=0 WHERE o.lock_name=_utf8mb4 x'6f726465723a37' AND o.kind=3 AND o.slot=0 AND (LENGTH(@tag_lock_ids)=1 OR FIND_IN_SET(0,@tag_lock_ids)) AND (o.status=0 OR o.deadline<=UTC_TIMESTAMP(6)) LIMIT 1000000 FOR UPDATE SKIP LOCKED) q) j) i) k
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
    o.count=k.v,
    o.deadline=k.y,
    o.modify_time=UTC_TIMESTAMP(6),
    u.status=1,
    u.holder=IF(k.a>0,k.d,u.holder),
    u.previous=IF(k.a>0,k.x+(k.a-1)*k.s,u.previous),
    u.count=IF(k.a>0,k.x+k.a*k.s,u.count),
    u.deadline=IF(k.a>0,k.e,u.deadline),
    u.modify_time=UTC_TIMESTAMP(6);

SET @tag_lock_changed=ROW_COUNT();

EXECUTE tag_lock_2
  USING 0,
    x'0fc89f8ae19394b48debd6353bb9ad33',
    :mark,
    _utf8mb4 x'6f726465723a37',
    3;

EXECUTE tag_lock_3
  USING x'd93244e7b08131ef10eda16a07176275',
    42;

IF @tag_lock_tried=:mark
  AND @tag_lock_decided=:mark
  AND @tag_lock_once=:mark
  AND @tag_lock_told=:mark
  AND @tag_lock_changed+ROW_COUNT()=@tag_lock_changes+2
  THEN
  SET @tag_lock_mark=:mark;

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

ELSE SIGNAL SQLSTATE '40001'
  SET MYSQL_ERRNO=1213,
    MESSAGE_TEXT='the server undid a part of the packet';

END IF;

END;
