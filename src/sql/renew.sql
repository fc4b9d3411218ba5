-- Renews or extends a lease of any kind, also a hold of a group and a waiter row (:fence is its sequence); :ttl
-- 0 leaves the deadline as it is. :description replaces the text while the lease is held (NULL leaves it as it
-- is).
-- Verdict: the insert id is the fence of the lease; 0 means that it has ended, that it is another's, or that the
-- row is locked.
-- Locks the row by its whole key and skips it if another session has locked it. It never waits.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, deadline, description, modify_time)
SELECT t.lock_name,
       t.kind,
       t.slot,
       GREATEST(t.deadline, TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6))),
       COALESCE(:description, t.description),
       IF(LAST_INSERT_ID(t.fence), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
  FROM t_tag_lock t FORCE INDEX (PRIMARY)
 WHERE t.lock_name = :name
   AND t.kind = :kind
   AND t.slot = :slot
   AND t.holder = :token
   AND t.fence = :fence
   AND t.status = 1
   AND t.deadline > UTC_TIMESTAMP(6)
   FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE
       deadline = VALUES(deadline),
       description = VALUES(description),
       modify_time = VALUES(modify_time)
