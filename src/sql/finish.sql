-- Releases a lease whose row does not become free. With :status 2 it stays taken for another :keep microseconds
-- (minimum hold); with :status 4 the slot of a job is done, and :description says what came of it (NULL leaves
-- the text as it is).
-- Verdict: the insert id is the fence of the lease; 0 means that this token does not hold the row, or that it is
-- locked.
-- Locks the row by its whole key and skips it if another session has locked it. It is sent again waiting if it
-- was skipped.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, status, deadline, description, modify_time)
SELECT t.lock_name,
       t.kind,
       t.slot,
       :status,
       IF(:status = 4, '9999-12-31', TIMESTAMPADD(MICROSECOND, :keep, UTC_TIMESTAMP(6))),
       COALESCE(:description, t.description),
       IF(LAST_INSERT_ID(t.fence), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
  FROM t_tag_lock t FORCE INDEX (PRIMARY)
 WHERE t.lock_name = :name
   AND t.kind = :kind
   AND t.slot = :slot
   AND t.holder = :token
   AND :fence IN (0, t.fence)
   AND t.status = 1
   FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE
       status = VALUES(status),
       deadline = VALUES(deadline),
       description = VALUES(description),
       modify_time = VALUES(modify_time)
