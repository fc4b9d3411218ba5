-- Frees by force a lock that a group holds: its row and all active holds, or none of them.
-- Verdict: the insert id is the new fence of the lock's row; 0 means that a row is locked, or that another
-- number of holds is active than :size, which was read (0 is allowed).
-- Locks the lock's row, then the rows of its holds in the order of their slots, and skips what other sessions
-- have locked.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, status, fence, deadline, modify_time)
SELECT k.lock_name,
       k.kind,
       k.slot,
       0,
       IF(k.kind = 1, LAST_INSERT_ID(k.top), k.fence),
       '1970-01-01',
       UTC_TIMESTAMP(6)
  FROM (SELECT y.*,
               MAX(y.fence) OVER () AS top,
               COUNT(*) OVER () AS size
          FROM (SELECT h.lock_name,
                       h.kind,
                       h.slot,
                       h.fence
                  FROM t_tag_lock t FORCE INDEX (PRIMARY)
                       STRAIGHT_JOIN (SELECT 1 AS kind
                                       UNION ALL
                                      SELECT 6) r
                       STRAIGHT_JOIN t_tag_lock h FORCE INDEX (PRIMARY)
                       ON h.lock_name = t.lock_name
                      AND h.kind = r.kind
                 WHERE t.lock_name = :name
                   AND t.kind = 1
                   AND t.slot = 0
                   AND t.status = 3
                   AND t.fence = :fence
                   AND h.status = IF(h.kind = 1, 3, 1)
                 LIMIT 100000
                   FOR UPDATE SKIP LOCKED) y) k
 WHERE k.size = :size + 1
ON DUPLICATE KEY UPDATE
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       modify_time = VALUES(modify_time)
