-- Acquires several locks without places in line, all or none of the :size names in :rows (each once): each must
-- be free, and no live waiter row may exist. A lock that a group held is freed before (close.sql).
-- Verdict: the insert id is the highest fencing token; each lock's own is its row's fence. 0 means refused,
-- missing or locked.
-- Locks the rows in the order of :rows and skips them if other sessions have locked them. It never waits.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, modify_time)
SELECT k.lock_name,
       1,
       0,
       :token,
       1,
       k.fence,
       TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6)),
       :description,
       :who,
       IF(LAST_INSERT_ID(k.top), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
  FROM (SELECT y.*,
               MAX(y.fence) OVER () AS top,
               COUNT(*) OVER () AS size
          FROM (SELECT t.lock_name,
                       GREATEST(t.fence, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :block AS fence
                  FROM (SELECT v.*
                          FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
                                   i FOR ORDINALITY,
                                   name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) v
                         LIMIT 100000) v
                       STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
                       ON t.lock_name = v.name
                      AND t.kind = 1
                      AND t.slot = 0
                 WHERE (t.status = 0 OR t.deadline <= UTC_TIMESTAMP(6))
                   AND (t.wanted_until <= UTC_TIMESTAMP(6)
                        OR NOT EXISTS (SELECT 1
                                         FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                        WHERE x.lock_name = t.lock_name
                                          AND x.kind = 8
                                          AND x.status = 1
                                          AND x.lowest = t.kind
                                          AND x.deadline > UTC_TIMESTAMP(6)
                                          AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))))
                   AND t.holder <> :token
                   AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
                 LIMIT 100000
                   FOR UPDATE SKIP LOCKED) y) k
 WHERE k.size = :size
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
