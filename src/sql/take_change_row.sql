-- Takes over a change row that no client uses. Its number goes on.
-- Verdict: the insert id is its number; 0 if another client was faster.
-- Locks the change row, and skips it if it is locked.
INSERT INTO t_tag_lock
  (lock_name, kind, slot, holder, status, fence, modify_time)
SELECT o.lock_name, o.kind, o.slot, :client, 1, LAST_INSERT_ID(o.fence + 1), UTC_TIMESTAMP(6)
FROM t_tag_lock o FORCE INDEX (PRIMARY)
WHERE o.lock_name = :change_row AND o.kind = 7 AND o.slot = :slot AND o.fence = :last
  AND (o.status = 0 OR o.modify_time <= TIMESTAMPADD(DAY, -1, UTC_TIMESTAMP(6)))
FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE
  holder = VALUES(holder),
  status = VALUES(status),
  fence = VALUES(fence),
  modify_time = VALUES(modify_time)
