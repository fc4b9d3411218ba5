-- Acquires a lock, an election or the slot of a job, if it is free and its hint says that nobody waits.
-- Verdict: the insert id is the last fencing token of the block; 0 means refused, missing or locked.
-- Locks the row by its whole key and skips it if another session has locked it. It never waits.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, modify_time)
SELECT t.lock_name,
       t.kind,
       t.slot,
       :token,
       1,
       LAST_INSERT_ID(GREATEST(t.fence, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :block),
       TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6)),
       :description,
       :who,
       UTC_TIMESTAMP(6)
  FROM t_tag_lock t FORCE INDEX (PRIMARY)
 WHERE t.lock_name = :name
   AND t.kind = :kind
   AND t.slot = :slot
   AND (t.status = 0 OR t.deadline <= UTC_TIMESTAMP(6))
   AND t.wanted_until <= UTC_TIMESTAMP(6)
   AND t.holder <> :token
   AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
   FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
