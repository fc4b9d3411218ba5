-- Joins the group that holds a lock, without writing the lock's row: many clients join at the same time.
-- Parameters as in open.sql.
-- Verdict: the insert id is the last fencing token of the block (of an inner level of an owner: the owner's
-- token); 0 means that the group does not hold the lock (open.sql), refused, missing or locked.
-- Locks the lock's row in share mode and waits for it, holding nothing; then waiter row and hold's row, which it
-- skips if other sessions have locked them. On a cluster with several writers use open.sql: a join must conflict
-- with an exclusive acquire.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, modify_time)
SELECT k.lock_name,
       r.kind,
       IF(r.kind = 6, :hold_slot, :waiter_slot),
       :token,
       r.kind = 6,
       IF(r.kind = 6, LAST_INSERT_ID(k.fence), :n),
       IF(r.kind = 6, TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6)), k.waiter_deadline),
       :description,
       :who,
       UTC_TIMESTAMP(6)
  FROM (SELECT t.lock_name,
               p.deadline AS waiter_deadline,
               IF(:exclusive = 1,
                  t.fence,
                  GREATEST(t.fence, h.fence, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :block) AS fence
          FROM (SELECT g.lock_name,
                       g.kind,
                       g.fence,
                       g.wanted_until
                  FROM t_tag_lock g FORCE INDEX (PRIMARY)
                 WHERE g.lock_name = :name
                   AND g.kind = 1
                   AND g.slot = 0
                   AND g.status = 3
                   AND g.holder = :group
                 LIMIT 1
                  LOCK IN SHARE MODE) t
               LEFT JOIN t_tag_lock p FORCE INDEX (PRIMARY)
               ON p.lock_name = t.lock_name
              AND p.kind = 8
              AND p.slot = :waiter_slot
              AND :n > 0
               STRAIGHT_JOIN t_tag_lock h FORCE INDEX (PRIMARY)
               ON h.lock_name = t.lock_name
              AND h.kind = 6
              AND h.slot = :hold_slot
         WHERE h.status = 0
           AND h.holder <> :token
           AND IF(:n > 0,
                  p.holder = :token AND p.fence = :n AND p.status = 1 AND p.deadline > UTC_TIMESTAMP(6),
                  1)
           AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
           AND IF(:exclusive = 1, EXISTS (SELECT 1
                                             FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                            WHERE x.lock_name = t.lock_name
                                              AND x.kind = 6
                                              AND x.status = 1), 1)
           AND CASE
                    WHEN :exclusive = 1 OR :n = 0 AND t.wanted_until <= UTC_TIMESTAMP(6) THEN 1
                    ELSE NOT EXISTS (SELECT 1
                                       FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                      WHERE x.lock_name = t.lock_name
                                        AND x.kind = 8
                                        AND x.status = 1
                                        AND x.lowest = t.kind
                                        AND x.deadline > UTC_TIMESTAMP(6)
                                        AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))
                                        AND x.previous >= 1
                                        AND (p.slot IS NULL OR x.count < p.count OR x.count = p.count AND x.slot < p.slot))
               END
         LIMIT 1
           FOR UPDATE SKIP LOCKED) k
       STRAIGHT_JOIN (SELECT 6 AS kind
                       UNION ALL
                      SELECT 8) r
       ON r.kind = 6
       OR :n > 0
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
