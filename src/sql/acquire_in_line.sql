-- Acquires a lock with the client's waiter row at the sequence :n, which is first in line, and ends that row. It
-- also takes over a lock that a group held, if none of the holds is active. With :unchanged above 0 it passes
-- the rows before its own: that is the fence with which the lock stood free all the time while a dead client was
-- first.
-- Verdict: the insert id is the last fencing token of the block; 0 means refused, missing or locked.
-- Locks the waiter row and the lock's row and skips them if other sessions have locked them. It never waits.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, modify_time)
SELECT k.lock_name,
       r.kind,
       IF(r.kind = 1, 0, :waiter_slot),
       :token,
       r.kind = 1,
       IF(r.kind = 1, LAST_INSERT_ID(k.fence), :n),
       IF(r.kind = 1, TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6)), k.waiter_deadline),
       :description,
       :who,
       UTC_TIMESTAMP(6)
  FROM (SELECT t.lock_name,
               p.deadline AS waiter_deadline,
               GREATEST(t.fence,
                        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
                        IF(t.status = 3,
                           (SELECT COALESCE(MAX(x.fence), 0)
                              FROM t_tag_lock x FORCE INDEX (PRIMARY)
                             WHERE x.lock_name = t.lock_name
                               AND x.kind = 6),
                           0)) + :block AS fence
          FROM t_tag_lock p FORCE INDEX (PRIMARY)
               STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
               ON t.lock_name = p.lock_name
              AND t.kind = 1
              AND t.slot = 0
         WHERE p.lock_name = :name
           AND p.kind = 8
           AND p.slot = :waiter_slot
           AND p.holder = :token
           AND p.fence = :n
           AND p.status = 1
           AND p.deadline > UTC_TIMESTAMP(6)
           AND CASE t.status
                    WHEN 0 THEN 1
                    WHEN 3 THEN NOT EXISTS (SELECT 1
                                             FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                            WHERE x.lock_name = t.lock_name
                                              AND x.kind = 6
                                              AND x.status = 1)
                    ELSE t.deadline <= UTC_TIMESTAMP(6)
               END
           AND IF(:unchanged > 0,
                  t.fence = :unchanged,
                  NOT EXISTS (SELECT 1
                                FROM t_tag_lock x FORCE INDEX (PRIMARY)
                               WHERE x.lock_name = t.lock_name
                                 AND x.kind = 8
                                 AND x.status = 1
                                 AND x.lowest = t.kind
                                 AND x.deadline > UTC_TIMESTAMP(6)
                                 AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))
                                 AND (x.count < p.count OR x.count = p.count AND x.slot < p.slot)))
           AND t.holder <> :token
           AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
         LIMIT 1
           FOR UPDATE SKIP LOCKED) k
       STRAIGHT_JOIN (SELECT 1 AS kind
                       UNION ALL
                      SELECT 8) r
       ON TRUE
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
