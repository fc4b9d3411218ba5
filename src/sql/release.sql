-- Releases a lease of any kind, also a hold of a group. :fence 0 stands for any fence of this token.
-- Verdict: the insert id is the fence of the lease; 0 means that this token does not hold the row, or that it is
-- locked.
-- Locks the row by its whole key and skips it if another session has locked it. A release that was skipped is
-- sent again waiting.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, status, modify_time)
SELECT t.lock_name,
       t.kind,
       t.slot,
       0,
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
       modify_time = VALUES(modify_time)
