-- Makes the row of an operation id whose counter is locked, with status 0: not decided yet.
-- An id that has a row is left alone.
-- Verdict: the id's row (read_ids.sql).
-- Waits for the id's stripe.
INSERT INTO t_tag_lock
  (lock_name, kind, slot, holder, status, previous, count, deadline, create_time, modify_time)
SELECT
  :id, 3, s.slot, :meaning, 0, 0, 0,
  TIMESTAMPADD(MICROSECOND, :retention, UTC_TIMESTAMP(6)),
  UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
FROM t_tag_lock s FORCE INDEX (PRIMARY)
WHERE s.lock_name = :stripe AND s.kind = 0 AND s.slot = 0
  AND IF(s.kind = 0, NOT EXISTS (
    SELECT 1 FROM t_tag_lock x FORCE INDEX (PRIMARY)
    WHERE x.lock_name = :id AND x.kind = 3 AND x.slot = s.slot AND x.deadline > UTC_TIMESTAMP(6)
  ), 0)
FOR UPDATE
ON DUPLICATE KEY UPDATE
  holder = VALUES(holder),
  status = VALUES(status),
  previous = VALUES(previous),
  count = VALUES(count),
  deadline = VALUES(deadline),
  create_time = VALUES(create_time),
  modify_time = VALUES(modify_time)
