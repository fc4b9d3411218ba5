-- Ends the waiter row of a client that is taken for dead, if its sequence and its deadline (microseconds since
-- 1970) are still those that were read.
-- Verdict: the insert id is the sequence; 0 means that the row has changed since, or that it is locked: then its
-- client lives.
-- Locks the waiter row and skips it if another session has locked it. It never waits.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, status, modify_time)
SELECT p.lock_name,
       p.kind,
       p.slot,
       0,
       IF(LAST_INSERT_ID(p.fence), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
  FROM t_tag_lock p FORCE INDEX (PRIMARY)
 WHERE p.lock_name = :name
   AND p.kind = 8
   AND p.slot = :waiter_slot
   AND p.fence = :n
   AND p.status = 1
   AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', p.deadline) = :deadline
   FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE
       status = VALUES(status),
       modify_time = VALUES(modify_time)
