SET @tag_lock_changed=NULL,
    autocommit=0,
    wait_timeout=1;

INSERT INTO t_tag_lock_lane (id,seq,results,modify_time)
  VALUES (x'd93244e7b08131ef10eda16a07176275',42,'42;gone',UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE results=IF(seq<VALUES(seq),'42;fenced',results),
    seq=GREATEST(seq,VALUES(seq)),
    modify_time=VALUES(modify_time);

SELECT :mark,
    COALESCE(results,'')
  INTO @tag_lock_settled,
    @tag_lock_results
  FROM t_tag_lock_lane
  WHERE id=x'd93244e7b08131ef10eda16a07176275'
  AND seq>=42
  FOR UPDATE;

SET completion_type=IF(@tag_lock_settled=:mark,'NO_CHAIN','undone');

COMMIT;

SELECT @tag_lock_results;

SET wait_timeout=28800;
