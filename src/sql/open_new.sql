-- Opens or joins a lock for a group as open.sql does, without a place in line, and creates the hold's missing
-- row with it.
-- Verdict: the insert id is the last fencing token of the block (of an inner level of an owner: the owner's
-- token); 0 means refused, locked, or that the hold's row exists.
-- Waits for the stripe's row. Behind it, it skips the lock's row if another session has locked it.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, create_time, modify_time)
SELECT k.lock_name,
       r.kind,
       IF(r.kind = 1, 0, :hold_slot),
       IF(r.kind = 1, CAST(:group AS BINARY(16)), CAST(:token AS BINARY(16))),
       IF(r.kind = 1, 3, 1),
       IF(r.kind = 1, LAST_INSERT_ID(k.new_fence), k.new_fence),
       IF(r.kind = 1, '9999-12-31', TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6))),
       IF(r.kind = 1 AND k.joins, k.description, :description),
       IF(r.kind = 1 AND k.joins, k.held_by, :who),
       UTC_TIMESTAMP(6),
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
                  FROM (SELECT s.slot AS zero
                          FROM t_tag_lock s FORCE INDEX (PRIMARY)
                         WHERE s.lock_name = :stripe
                           AND s.kind = 0
                           AND s.slot = 0
                         LIMIT 1
                           FOR UPDATE) g
                       STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
                       ON t.lock_name = :name
                      AND t.kind = 1
                      AND t.slot = g.zero
                 WHERE IF(g.zero = 0, NOT EXISTS (SELECT 1
                                                    FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                                   WHERE x.lock_name = t.lock_name
                                                     AND x.kind = 6
                                                     AND x.slot = :hold_slot + g.zero), 0)
                   AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
                 LIMIT 1
                   FOR UPDATE SKIP LOCKED) t
         WHERE CASE t.status
                    WHEN 0 THEN 1
                    WHEN 3 THEN t.joins OR t.holds = 0
                    ELSE t.deadline <= UTC_TIMESTAMP(6)
               END
           AND CASE
                    WHEN t.wanted_until <= UTC_TIMESTAMP(6) THEN 1
                    WHEN :exclusive = 1 AND t.joins AND t.holds > 0 THEN 1
                    ELSE NOT EXISTS (SELECT 1
                                       FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                      WHERE x.lock_name = t.lock_name
                                        AND x.kind = 8
                                        AND x.status = 1
                                        AND x.lowest = t.kind
                                        AND x.deadline > UTC_TIMESTAMP(6)
                                        AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))
                                        AND x.previous >= 1 - :exclusive)
               END
         LIMIT 1) k
       STRAIGHT_JOIN (SELECT 1 AS kind
                       UNION ALL
                      SELECT 6) r
       ON TRUE
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
