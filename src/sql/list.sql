-- Lists the rows of one kind that are taken, in a range of names, as a page of at most :limit rows behind
-- (:first_name, :after_slot): locks with their first live waiter; with kind 8 the live waiters themselves (count
-- is the number in the line, which is also the time in microseconds since 1970 at which the place was taken;
-- previous the units, lowest the kind of the line, highest the locks). :first_name and :last_name enclose the
-- names that begin with :prefix, a hexadecimal text.
-- It locks nothing and waits for nothing.
SELECT t.lock_name,
       t.slot,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now,
       t.count,
       t.previous,
       t.lowest,
       t.highest,
       t.status,
       CAST(t.fence AS UNSIGNED) AS fence,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', t.deadline) AS deadline,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', t.wanted_until) AS wanted_until,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', t.modify_time) AS modify_time,
       t.held_by,
       t.description,
       IF(t.status = 3,
          (SELECT COUNT(*)
             FROM t_tag_lock x FORCE INDEX (PRIMARY)
            WHERE x.lock_name = t.lock_name
              AND x.kind = 6
              AND x.status = 1),
          0) AS holds,
       IF(t.kind = 5 OR t.kind = 1 AND t.wanted_until > UTC_TIMESTAMP(6),
          (SELECT COUNT(*)
             FROM t_tag_lock x FORCE INDEX (PRIMARY)
            WHERE x.lock_name = t.lock_name
              AND x.kind = 8
              AND x.status = 1
              AND x.lowest = t.kind
              AND x.deadline > UTC_TIMESTAMP(6)
              AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))),
          0) AS waiters,
       f.held_by AS first_held_by,
       f.description AS first_description,
       f.count AS first_number,
       f.previous AS first_units
  FROM t_tag_lock t FORCE INDEX (PRIMARY)
       LEFT JOIN t_tag_lock f FORCE INDEX (PRIMARY)
       ON f.lock_name = t.lock_name
      AND f.kind = 8
      AND f.slot = IF(t.kind = 5 OR t.kind = 1 AND t.wanted_until > UTC_TIMESTAMP(6),
                      (SELECT x.slot
                         FROM t_tag_lock x FORCE INDEX (PRIMARY)
                        WHERE x.lock_name = t.lock_name
                          AND x.kind = 8
                          AND x.status = 1
                          AND x.lowest = t.kind
                          AND x.deadline > UTC_TIMESTAMP(6)
                          AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))
                        ORDER BY x.count, x.slot
                        LIMIT 1),
                      NULL)
 WHERE t.lock_name >= :first_name
   AND t.lock_name <= :last_name
   AND (t.lock_name <> :first_name OR t.slot > :after_slot)
   AND t.kind = :kind
   AND t.status <> 0
   AND t.deadline > UTC_TIMESTAMP(6)
   AND HEX(t.lock_name) LIKE CONCAT(:prefix, '%')
 ORDER BY t.lock_name, t.kind, t.slot
 LIMIT :limit
