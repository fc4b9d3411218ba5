-- Acquires several locks with the client's waiter rows at the sequences n, which are first in their lines, and
-- ends those rows: all or none of the :size names in :rows (each once). unchanged is as in acquire_in_line.sql,
-- 0 otherwise. A lock that a group held is freed before (close.sql).
-- Verdict: the insert id is the highest fencing token; each lock's own is its row's fence. 0 means refused,
-- missing or locked.
-- Locks waiter row and lock's row of each name, in the order of :rows, and skips them if other sessions have
-- locked them. It never waits.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, modify_time)
SELECT k.lock_name,
       r.kind,
       IF(r.kind = 1, 0, :waiter_slot),
       :token,
       r.kind = 1,
       IF(r.kind = 1, k.fence, k.n),
       IF(r.kind = 1, TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6)), k.waiter_deadline),
       :description,
       :who,
       IF(LAST_INSERT_ID(k.top), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
  FROM (SELECT y.*,
               MAX(y.fence) OVER () AS top,
               COUNT(*) OVER () AS size
          FROM (SELECT t.lock_name,
                       v.n,
                       p.deadline AS waiter_deadline,
                       GREATEST(t.fence, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :block AS fence
                  FROM (SELECT v.*
                          FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
                                   i FOR ORDINALITY,
                                   name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
                                   n BIGINT UNSIGNED PATH '$[1]',
                                   unchanged BIGINT UNSIGNED PATH '$[2]')) v
                         LIMIT 100000) v
                       STRAIGHT_JOIN t_tag_lock p FORCE INDEX (PRIMARY)
                       ON p.lock_name = v.name
                      AND p.kind = 8
                      AND p.slot = :waiter_slot
                       STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
                       ON t.lock_name = p.lock_name
                      AND t.kind = 1
                      AND t.slot = 0
                 WHERE p.holder = :token
                   AND p.fence = v.n
                   AND p.status = 1
                   AND p.deadline > UTC_TIMESTAMP(6)
                   AND (t.status = 0 OR t.deadline <= UTC_TIMESTAMP(6))
                   AND IF(v.unchanged > 0,
                          t.fence = v.unchanged,
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
                 LIMIT 100000
                   FOR UPDATE SKIP LOCKED) y) k
       STRAIGHT_JOIN (SELECT 1 AS kind
                       UNION ALL
                      SELECT 8) r
       ON TRUE
 WHERE k.size = :size
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
