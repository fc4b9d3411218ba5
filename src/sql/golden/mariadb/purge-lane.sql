BEGIN NOT ATOMIC
SET @tag_lock_changed=NULL,
    autocommit=0;

DELETE u
  FROM (SELECT id FROM t_tag_lock_lane WHERE id=x'd93244e7b08131ef10eda16a07176275' AND TIMESTAMPDIFF(MICROSECOND,modify_time,UTC_TIMESTAMP(6))>=86400000000 LIMIT 1 FOR UPDATE SKIP LOCKED) k
  STRAIGHT_JOIN t_tag_lock_lane u FORCE INDEX(PRIMARY)
  ON u.id=k.id;

SELECT :mark,
    ROW_COUNT()
  INTO @tag_lock_purged,
    @tag_lock_deleted;

IF @tag_lock_purged=:mark
  THEN
  SET @tag_lock_mark=:mark;

COMMIT;

SELECT @tag_lock_deleted;

ELSE SIGNAL SQLSTATE '40001'
  SET MYSQL_ERRNO=1213,
    MESSAGE_TEXT='the server undid a part of the packet';

END IF;

END;
