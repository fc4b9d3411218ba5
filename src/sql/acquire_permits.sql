-- Acquires several permits of one semaphore, or one in line: all or none of the :size slots in :rows (each
-- once). With a sequence :n it needs the client's waiter row and ends it; with :n 0 it has none. As many permits
-- as the live waiters before it want must stay free beside its own; with :passing 1 they are not counted (the
-- client that is first is dead). :permits is the size of the semaphore.
-- Verdict: the insert id is the highest fencing token; each slot's own is its row's fence. 0 means refused,
-- missing or locked.
-- Locks the waiter row and the slots in the order of :rows and skips them if other sessions have locked them. It
-- never waits.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, modify_time)
SELECT k.lock_name,
       r.kind,
       IF(r.kind = 5, k.slot, :waiter_slot),
       :token,
       r.kind = 5,
       IF(r.kind = 5, k.fence, :n),
       IF(r.kind = 5, TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6)), k.waiter_deadline),
       :description,
       :who,
       IF(LAST_INSERT_ID(k.top), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
  FROM (SELECT y.*,
               MAX(y.fence) OVER () AS top,
               MIN(y.turn) OVER () AS turns,
               COUNT(*) OVER () AS size
          FROM (SELECT v.i,
                       t.lock_name,
                       t.slot,
                       p.deadline AS waiter_deadline,
                       GREATEST(t.fence, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :block AS fence,
                       CASE
                            WHEN v.i > 1 OR :passing > 0 THEN 1
                            WHEN :n = 0 AND (SELECT COALESCE(MAX(x.wanted_until), '1970-01-01')
                                               FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                              WHERE x.lock_name = t.lock_name
                                                AND x.kind = 5
                                                AND x.slot = 0) <= UTC_TIMESTAMP(6) THEN 1
                            ELSE :permits - (SELECT COUNT(*)
                                               FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                              WHERE x.lock_name = t.lock_name
                                                AND x.kind = 5
                                                AND x.slot < :permits
                                                AND x.status <> 0
                                                AND x.deadline > UTC_TIMESTAMP(6))
                                 >= :size + (SELECT COALESCE(SUM(x.previous), 0)
                                               FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                              WHERE x.lock_name = t.lock_name
                                                AND x.kind = 8
                                                AND x.status = 1
                                                AND x.lowest = t.kind
                                                AND x.deadline > UTC_TIMESTAMP(6)
                                                AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))
                                                AND (p.slot IS NULL
                                                     OR x.count < p.count
                                                     OR x.count = p.count AND x.slot < p.slot))
                       END AS turn
                  FROM (SELECT v.*
                          FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
                                   i FOR ORDINALITY,
                                   slot INT UNSIGNED PATH '$')) v
                         LIMIT 100000) v
                       LEFT JOIN t_tag_lock p FORCE INDEX (PRIMARY)
                       ON p.lock_name = :name
                      AND p.kind = 8
                      AND p.slot = :waiter_slot
                      AND :n > 0
                       STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
                       ON t.lock_name = :name
                      AND t.kind = 5
                      AND t.slot = v.slot
                 WHERE IF(:n > 0,
                          p.holder = :token AND p.fence = :n AND p.status = 1 AND p.deadline > UTC_TIMESTAMP(6),
                          1)
                   AND (t.status = 0 OR t.deadline <= UTC_TIMESTAMP(6))
                   AND t.holder <> :token
                   AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
                 LIMIT 100000
                   FOR UPDATE SKIP LOCKED) y) k
       STRAIGHT_JOIN (SELECT 5 AS kind
                       UNION ALL
                      SELECT 8) r
       ON r.kind = 5
       OR :n > 0 AND k.i = 1
 WHERE k.size = :size
   AND k.turns = 1
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
