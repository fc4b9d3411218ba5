-- Makes a change row for a client.
-- Verdict: the insert id is its number, 1; 0 if the slot is taken, or if the stripe is missing.
-- Waits for the stripe.
INSERT INTO t_tag_lock
  (lock_name, kind, slot, holder, status, fence, create_time, modify_time)
SELECT
  :change_row, 7, :slot + s.slot, :client, 1, LAST_INSERT_ID(1),
  UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
FROM t_tag_lock s FORCE INDEX (PRIMARY)
WHERE s.lock_name = :stripe AND s.kind = 0 AND s.slot = 0
  AND IF(s.kind = 0, NOT EXISTS (
    SELECT 1 FROM t_tag_lock x FORCE INDEX (PRIMARY)
    WHERE x.lock_name = :change_row AND x.kind = 7 AND x.slot = :slot + s.slot
  ), 0)
FOR UPDATE
ON DUPLICATE KEY UPDATE
  modify_time = IF(LAST_INSERT_ID(0) = 0, t_tag_lock.modify_time, VALUES(modify_time))
