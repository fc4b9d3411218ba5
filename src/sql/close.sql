-- Frees the row of a lock that a group held, if none of the holds is active (their status counts, not their
-- deadline: holds_ended.sql comes first). For lock_in, which looks at the row alone; acquire_in_line.sql and
-- open.sql take such a lock over by themselves.
-- Verdict: the insert id is the lock's new fence, not below any hold's; 0 means that a hold is active, that no
-- group holds it, or locked.
-- Locks the lock's row and skips it if another session has locked it. It never waits.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, status, fence, deadline, modify_time)
SELECT t.lock_name,
       t.kind,
       t.slot,
       0,
       LAST_INSERT_ID(GREATEST(t.fence,
                               IF(t.status = 3,
                                  (SELECT COALESCE(MAX(x.fence), 0)
                                     FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                    WHERE x.lock_name = t.lock_name
                                      AND x.kind = 6),
                                  0))),
       '1970-01-01',
       UTC_TIMESTAMP(6)
  FROM t_tag_lock t FORCE INDEX (PRIMARY)
 WHERE t.lock_name = :name
   AND t.kind = 1
   AND t.slot = 0
   AND IF(t.status = 3, NOT EXISTS (SELECT 1
                                      FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                     WHERE x.lock_name = t.lock_name
                                       AND x.kind = 6
                                       AND x.status = 1), 0)
   FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       modify_time = VALUES(modify_time)
