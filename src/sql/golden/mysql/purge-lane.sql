SET @tag_lock_changed=NULL,
    autocommit=0,
    wait_timeout=1;

DELETE u
  FROM (SELECT id FROM t_tag_lock_lane WHERE id=x'd93244e7b08131ef10eda16a07176275' AND TIMESTAMPDIFF(MICROSECOND,modify_time,UTC_TIMESTAMP(6))>=86400000000 LIMIT 1 FOR UPDATE SKIP LOCKED) k
  STRAIGHT_JOIN t_tag_lock_lane u FORCE INDEX(PRIMARY)
  ON u.id=k.id;

SELECT :mark,
    ROW_COUNT()
  INTO @tag_lock_purged,
    @tag_lock_deleted;

SET completion_type=IF(@tag_lock_purged=:mark,'NO_CHAIN','undone');

COMMIT;

SELECT @tag_lock_deleted;

SET wait_timeout=28800;
