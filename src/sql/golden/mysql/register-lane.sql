SET @tag_lock_changed=NULL,
    autocommit=0,
    wait_timeout=1;

INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (x'd93244e7b08131ef10eda16a07176275',0,UTC_TIMESTAMP(6));

SET completion_type=IF(ROW_COUNT()=1,'NO_CHAIN','undone');

COMMIT;

SELECT 'registered';

SET wait_timeout=28800;
