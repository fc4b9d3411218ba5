PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (UNHEX(?),?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

PREPARE tag_lock_1 FROM '
SELECT IF(ROW_COUNT()>0,?,0),
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(MAX(IF(t.holder=UNHEX(?) AND t.status=1 AND t.fence=?,?,NULL)),''),
    CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';',COALESCE(MAX(CONCAT_WS(' ',?,t.status,t.holder=UNHEX(?),t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),t.previous,t.count,IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),''))
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
    t_tag_lock.fence=?,
    t_tag_lock.deadline='9999-12-31 00:00:00',
    t_tag_lock.status=4,
    t_tag_lock.count=0,
    t_tag_lock.previous=?';

SET @tag_lock_changed=NULL,
    autocommit=0,
    wait_timeout=1,
    @tag_lock_0='d93244e7b08131ef10eda16a07176275',
    @tag_lock_1=42,
    @tag_lock_2=:mark,
    @tag_lock_3='6e45386daeb0b86da1ac4c609001d1e9',
    @tag_lock_4=1790000000065536,
    @tag_lock_5=0,
    @tag_lock_6=_utf8mb4 x'696e766f6963657340323032362d31312d3232',
    @tag_lock_7=4,
    @tag_lock_8=1,
    @tag_lock_9=1790000000000001;

EXECUTE tag_lock_0
  USING @tag_lock_0,
    @tag_lock_1;

EXECUTE tag_lock_1
  USING @tag_lock_2,
    @tag_lock_3,
    @tag_lock_4,
    @tag_lock_5,
    @tag_lock_5,
    @tag_lock_3,
    @tag_lock_6,
    @tag_lock_7;

EXECUTE tag_lock_2
  USING @tag_lock_6,
    @tag_lock_7,
    @tag_lock_8,
    @tag_lock_5,
    @tag_lock_9,
    @tag_lock_5;

SET completion_type=IF(@tag_lock_decided=:mark AND ROW_COUNT()=2*(@tag_lock_granted<>''),'NO_CHAIN','undone');

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

SET wait_timeout=28800;
