SET @tag_lock_changed=NULL,
    autocommit=0,
    wait_timeout=1;

SELECT :mark,
    COALESCE(MAX(t.lock_name),'')
  INTO @tag_lock_locked,
    @tag_lock_stripes
  FROM t_tag_lock t FORCE INDEX(PRIMARY)
  WHERE t.lock_name=_utf8mb4 x'63656e7465725f6c6f636b5f3834'
  AND t.kind=0
  AND t.slot=0
  FOR UPDATE;

INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT s.lock_name,
    0,
    0
  FROM t_tag_lock s FORCE INDEX(PRIMARY)
  WHERE s.lock_name=_utf8mb4 x'63656e7465725f6c6f636b5f3834'
  AND s.kind=0
  AND s.slot=0
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.count=GREATEST(t_tag_lock.count,1790000000000001);

SET @tag_lock_changed=ROW_COUNT();

DELETE u
  FROM (SELECT t.lock_name AS n,t.kind AS k FROM t_tag_lock t FORCE INDEX(PRIMARY) WHERE t.lock_name=_utf8mb4 x'6a6f62' AND t.kind=1 AND t.slot=0 AND t.fence=1790000000000001 AND (t.kind=1 AND (t.status=0 OR t.deadline<=UTC_TIMESTAMP(6)) OR t.kind>1 AND t.deadline<=UTC_TIMESTAMP(6)) AND TIMESTAMPDIFF(MICROSECOND,t.modify_time,UTC_TIMESTAMP(6))>=86400000000 LIMIT 1000000 FOR UPDATE SKIP LOCKED) k
  STRAIGHT_JOIN t_tag_lock u FORCE INDEX(PRIMARY)
  ON u.lock_name=k.n
  AND u.kind=k.k
  AND u.slot=0;

SELECT :mark,
    ROW_COUNT()
  INTO @tag_lock_purged,
    @tag_lock_deleted;

SET completion_type=IF(@tag_lock_locked=:mark AND @tag_lock_purged=:mark AND @tag_lock_changed=2,'NO_CHAIN','undone');

COMMIT;

SELECT @tag_lock_deleted;

SET wait_timeout=28800;
