BEGIN NOT ATOMIC
SET @tag_lock_changed=NULL,
    autocommit=0;

INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (x'd93244e7b08131ef10eda16a07176275',0,UTC_TIMESTAMP(6));

IF ROW_COUNT()=1
  THEN
  SET @tag_lock_mark=:mark;

COMMIT;

SELECT 'registered';

ELSE SIGNAL SQLSTATE '40001'
  SET MYSQL_ERRNO=1213,
    MESSAGE_TEXT='the server undid a part of the packet';

END IF;

END;
