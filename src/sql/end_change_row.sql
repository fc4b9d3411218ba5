-- Leaves a change row to later clients. A statement of this client up to number :n that has not run yet
-- never will: it finds another number.
-- Verdict: none is needed.
-- Waits for the change row.
INSERT INTO t_tag_lock
  (lock_name, kind, slot, status, fence, modify_time)
SELECT o.lock_name, o.kind, o.slot, 0, GREATEST(o.fence, :n), UTC_TIMESTAMP(6)
FROM t_tag_lock o FORCE INDEX (PRIMARY)
WHERE o.lock_name = :change_row AND o.kind = 7 AND o.slot = :slot AND o.holder = :client
FOR UPDATE
ON DUPLICATE KEY UPDATE
  status = VALUES(status),
  fence = VALUES(fence),
  modify_time = VALUES(modify_time)
