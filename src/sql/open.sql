-- Opens a lock for a group (readers, or the levels of one owner), or joins a group that holds it, with the
-- client's own hold row; the lock's row says afterwards that the group holds it. :exclusive is 1 for an owner,
-- which waits for all live waiters, and 0 for readers, which wait for exclusive ones only. With a sequence :n it
-- needs the client's waiter row and ends it; with :n 0 it has none.
-- Verdict: the insert id is the last fencing token of the block (of an inner level of an owner: the owner's
-- token); 0 means refused, missing or locked.
-- Locks waiter row, hold's row and lock's row and skips them if other sessions have locked them. It never waits.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, modify_time)
SELECT k.lock_name,
       r.kind,
       CASE r.kind WHEN 1 THEN 0 WHEN 6 THEN :hold_slot ELSE :waiter_slot END,
       IF(r.kind = 1, CAST(:group AS BINARY(16)), CAST(:token AS BINARY(16))),
       CASE r.kind WHEN 1 THEN 3 WHEN 6 THEN 1 ELSE 0 END,
       CASE r.kind WHEN 1 THEN LAST_INSERT_ID(k.new_fence) WHEN 6 THEN k.new_fence ELSE :n END,
       CASE r.kind
            WHEN 1 THEN '9999-12-31'
            WHEN 6 THEN TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6))
            ELSE k.waiter_deadline
       END,
       IF(r.kind = 1 AND k.joins, k.description, :description),
       IF(r.kind = 1 AND k.joins, k.held_by, :who),
       UTC_TIMESTAMP(6)
  FROM (SELECT t.*,
               IF(:exclusive = 1 AND t.joins AND t.holds > 0,
                  t.fence,
                  GREATEST(t.fence, t.hold_fence, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :block) AS new_fence
          FROM (SELECT t.lock_name,
                       t.kind,
                       t.status,
                       t.deadline,
                       t.fence,
                       t.wanted_until,
                       t.description,
                       t.held_by,
                       p.slot AS waiter_slot,
                       p.count AS number,
                       p.deadline AS waiter_deadline,
                       t.status = 3 AND t.holder = :group AS joins,
                       IF(t.status = 3,
                          (SELECT COUNT(*)
                             FROM t_tag_lock x FORCE INDEX (PRIMARY)
                            WHERE x.lock_name = t.lock_name
                              AND x.kind = 6
                              AND x.status = 1),
                          0) AS holds,
                       IF(t.status = 3,
                          (SELECT COALESCE(MAX(x.fence), 0)
                             FROM t_tag_lock x FORCE INDEX (PRIMARY)
                            WHERE x.lock_name = t.lock_name
                              AND x.kind = 6),
                          0) AS hold_fence
                  FROM (SELECT 1 AS one) o
                       LEFT JOIN t_tag_lock p FORCE INDEX (PRIMARY)
                       ON p.lock_name = :name
                      AND p.kind = 8
                      AND p.slot = :waiter_slot
                      AND :n > 0
                       STRAIGHT_JOIN t_tag_lock h FORCE INDEX (PRIMARY)
                       ON h.lock_name = :name
                      AND h.kind = 6
                      AND h.slot = :hold_slot
                       STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
                       ON t.lock_name = h.lock_name
                      AND t.kind = 1
                      AND t.slot = 0
                 WHERE h.status = 0
                   AND h.holder <> :token
                   AND IF(:n > 0,
                          p.holder = :token AND p.fence = :n AND p.status = 1 AND p.deadline > UTC_TIMESTAMP(6),
                          1)
                   AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
                 LIMIT 1
                   FOR UPDATE SKIP LOCKED) t
         WHERE CASE t.status
                    WHEN 0 THEN 1
                    WHEN 3 THEN t.joins OR t.holds = 0
                    ELSE t.deadline <= UTC_TIMESTAMP(6)
               END
           AND CASE
                    WHEN :unchanged > 0 THEN t.fence = :unchanged
                    WHEN :n = 0 AND t.wanted_until <= UTC_TIMESTAMP(6) THEN 1
                    WHEN :exclusive = 1 AND t.joins AND t.holds > 0 THEN 1
                    ELSE NOT EXISTS (SELECT 1
                                       FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                      WHERE x.lock_name = t.lock_name
                                        AND x.kind = 8
                                        AND x.status = 1
                                        AND x.lowest = t.kind
                                        AND x.deadline > UTC_TIMESTAMP(6)
                                        AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))
                                        AND x.previous >= 1 - :exclusive
                                        AND (t.waiter_slot IS NULL
                                             OR x.count < t.number
                                             OR x.count = t.number AND x.slot < t.waiter_slot))
               END
         LIMIT 1) k
       STRAIGHT_JOIN (SELECT 1 AS kind
                       UNION ALL
                      SELECT 6
                       UNION ALL
                      SELECT 8) r
       ON r.kind < 8
       OR :n > 0
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
