BEGIN NOT ATOMIC
SET @tag_lock_changed=NULL,
    autocommit=0;

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

IF @tag_lock_settled=:mark
  THEN
  SET @tag_lock_mark=:mark;

COMMIT;

SELECT @tag_lock_results;

ELSE SIGNAL SQLSTATE '40001'
  SET MYSQL_ERRNO=1213,
    MESSAGE_TEXT='the server undid a part of the packet';

END IF;

END;
