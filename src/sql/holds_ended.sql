-- Ends the holds of a lock's group whose leases have run out.
-- Verdict: none; the client reads the lock again.
-- Locks the rows of the holds in the order of their slots (a range of the primary key) and skips what other
-- sessions have locked.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, status, modify_time)
SELECT h.lock_name,
       h.kind,
       h.slot,
       0,
       UTC_TIMESTAMP(6)
  FROM t_tag_lock h FORCE INDEX (PRIMARY)
 WHERE h.lock_name = :name
   AND h.kind = 6
   AND h.status = 1
   AND h.deadline <= UTC_TIMESTAMP(6)
   FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE
       status = VALUES(status),
       modify_time = VALUES(modify_time)
