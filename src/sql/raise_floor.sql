-- Raises the floor of fencing tokens in the rows of stripes to the highest fence of the rows that a purge will
-- delete.
-- Verdict: the insert id is how many stripes have at least that floor now; purge.sql follows only if it is as
-- many as :rows has.
-- Waits for the rows of the stripes, in the order of :rows, which must ascend.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, count, modify_time)
SELECT k.lock_name,
       k.kind,
       k.slot,
       k.floor,
       IF(LAST_INSERT_ID(k.size), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
  FROM (SELECT y.*,
               COUNT(*) OVER () AS size
          FROM (SELECT s.lock_name,
                       s.kind,
                       s.slot,
                       GREATEST(s.count, v.fence) AS floor
                  FROM (SELECT v.*
                          FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
                                   i FOR ORDINALITY,
                                   stripe VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
                                   fence BIGINT PATH '$[1]')) v
                         LIMIT 100000) v
                       STRAIGHT_JOIN t_tag_lock s FORCE INDEX (PRIMARY)
                       ON s.lock_name = v.stripe
                      AND s.kind = 0
                      AND s.slot = 0
                 LIMIT 100000
                   FOR UPDATE) y) k
ON DUPLICATE KEY UPDATE
       count = VALUES(count),
       modify_time = VALUES(modify_time)
