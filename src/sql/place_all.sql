-- Takes a place in the lines of several locks with one number that is above all of them: writes the client's
-- waiter row of each name of :rows at the sequence n, all or none of the :size rows, if each is at n - 1 and
-- each lock's hint stands (hint.sql).
-- Verdict: the insert id is that number; 0 means that a hint is missing, a sequence is another one, or a row is
-- missing.
-- Waits for the client's own waiter rows, in the order of :rows; numbers and hints are read without a lock.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, count, previous, lowest, highest, deadline, description, held_by, modify_time)
SELECT k.lock_name,
       k.kind,
       k.slot,
       :token,
       1,
       k.n,
       LAST_INSERT_ID(k.number),
       1,
       1,
       k.size,
       TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6)),
       :description,
       :who,
       UTC_TIMESTAMP(6)
  FROM (SELECT y.*,
               MAX(y.top) OVER () + 1 AS number,
               COUNT(*) OVER () AS size
          FROM (SELECT v.n,
                       p.lock_name,
                       p.kind,
                       p.slot,
                       GREATEST(COALESCE((SELECT MAX(x.count)
                                            FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                           WHERE x.lock_name = p.lock_name
                                             AND x.kind = p.kind), 0),
                                TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS top
                  FROM (SELECT v.*
                          FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
                                   i FOR ORDINALITY,
                                   name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
                                   n BIGINT UNSIGNED PATH '$[1]')) v
                         LIMIT 100000) v
                       STRAIGHT_JOIN t_tag_lock p FORCE INDEX (PRIMARY)
                       ON p.lock_name = v.name
                      AND p.kind = 8
                      AND p.slot = :waiter_slot
                 WHERE p.fence + 1 = v.n
                   AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
                   AND IF(p.kind = 8, EXISTS (SELECT 1
                                                FROM t_tag_lock h FORCE INDEX (PRIMARY)
                                               WHERE h.lock_name = p.lock_name
                                                 AND h.kind = 1
                                                 AND h.slot = 0
                                                 AND h.wanted_until > TIMESTAMPADD(MINUTE, 29, UTC_TIMESTAMP(6))), 0)
                 LIMIT 100000
                   FOR UPDATE) y) k
 WHERE k.size = :size
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       count = VALUES(count),
       previous = VALUES(previous),
       lowest = VALUES(lowest),
       highest = VALUES(highest),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
