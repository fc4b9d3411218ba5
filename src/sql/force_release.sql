-- Frees a lock, a slot of a job, a permit or a single hold by force, if its fence and its status are still those
-- that were read.
-- Verdict: the insert id is that fence; 0 means that the row has changed since, or that it is locked.
-- Locks the row by its whole key and skips it if another session has locked it; it is sent again waiting if it
-- has to be.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, status, deadline, modify_time)
SELECT t.lock_name,
       t.kind,
       t.slot,
       0,
       '1970-01-01',
       IF(LAST_INSERT_ID(t.fence), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
  FROM t_tag_lock t FORCE INDEX (PRIMARY)
 WHERE t.lock_name = :name
   AND t.kind = :kind
   AND t.slot = :slot
   AND t.fence = :fence
   AND t.status = :status
   AND t.status IN (1, 2, 4)
   FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE
       status = VALUES(status),
       deadline = VALUES(deadline),
       modify_time = VALUES(modify_time)
