-- One look of a client at all locks for which it waits: for each name of :rows the lock's row, the client's hold
-- row and its waiter row at the sequence n and whether it stands (`waits`), the live waiters before it
-- (units_before_me counts the exclusive ones), and the first live waiter with what its condition depends on
-- (status and active holds). `mine` and `hold_mine` are the grant: the row has this token. `now` is the server's
-- time; all times are microseconds since 1970.
-- It locks nothing and waits for nothing.
SELECT v.i,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now,
       t.status,
       t.holder = UNHEX(v.token) AND t.status = 1 AS mine,
       CAST(t.fence AS UNSIGNED) AS fence,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', t.deadline) AS deadline,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', t.wanted_until) AS wanted_until,
       HEX(t.holder) AS holder,
       IF(t.status = 3,
          (SELECT COUNT(*)
             FROM t_tag_lock x FORCE INDEX (PRIMARY)
            WHERE x.lock_name = t.lock_name
              AND x.kind = 6
              AND x.status = 1),
          0) AS holds,
       h.holder = UNHEX(v.token) AND h.status = 1 AS hold_mine,
       CAST(h.fence AS UNSIGNED) AS hold_fence,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', h.deadline) AS hold_deadline,
       p.holder = UNHEX(v.token) AND p.status = 1 AND p.fence = v.n AND p.deadline > UTC_TIMESTAMP(6) AS waits,
       CAST(p.fence AS UNSIGNED) AS sequence,
       p.count AS number,
       (SELECT COUNT(*)
          FROM t_tag_lock x FORCE INDEX (PRIMARY)
         WHERE x.lock_name = v.name
           AND x.kind = 8
           AND x.status = 1
           AND x.lowest = 1
           AND x.deadline > UTC_TIMESTAMP(6)
           AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))
           AND (x.count < p.count OR x.count = p.count AND x.slot < p.slot)) AS before_me,
       (SELECT COALESCE(SUM(x.previous), 0)
          FROM t_tag_lock x FORCE INDEX (PRIMARY)
         WHERE x.lock_name = v.name
           AND x.kind = 8
           AND x.status = 1
           AND x.lowest = 1
           AND x.deadline > UTC_TIMESTAMP(6)
           AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))
           AND (x.count < p.count OR x.count = p.count AND x.slot < p.slot)) AS units_before_me,
       f.slot AS first_slot,
       CAST(f.fence AS UNSIGNED) AS first_sequence,
       f.count AS first_number,
       f.previous AS first_units,
       f.highest AS first_locks,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', f.deadline) AS first_deadline,
       f.held_by AS first_held_by,
       f.description AS first_description
  FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
                   i FOR ORDINALITY,
                   name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
                   waiter_slot INT UNSIGNED PATH '$[1]',
                   n BIGINT UNSIGNED PATH '$[2]',
                   token CHAR(32) CHARACTER SET latin1 PATH '$[3]',
                   hold_slot INT UNSIGNED PATH '$[4]')) v
       LEFT JOIN t_tag_lock t FORCE INDEX (PRIMARY)
       ON t.lock_name = v.name
      AND t.kind = 1
      AND t.slot = 0
       LEFT JOIN t_tag_lock h FORCE INDEX (PRIMARY)
       ON h.lock_name = v.name
      AND h.kind = 6
      AND h.slot = v.hold_slot
       LEFT JOIN t_tag_lock p FORCE INDEX (PRIMARY)
       ON p.lock_name = v.name
      AND p.kind = 8
      AND p.slot = v.waiter_slot
       LEFT JOIN t_tag_lock f FORCE INDEX (PRIMARY)
       ON f.lock_name = t.lock_name
      AND f.kind = 8
      AND f.slot = IF(t.wanted_until > UTC_TIMESTAMP(6),
                      (SELECT x.slot
                         FROM t_tag_lock x FORCE INDEX (PRIMARY)
                        WHERE x.lock_name = t.lock_name
                          AND x.kind = 8
                          AND x.status = 1
                          AND x.lowest = 1
                          AND x.deadline > UTC_TIMESTAMP(6)
                          AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))
                        ORDER BY x.count, x.slot
                        LIMIT 1),
                      NULL)
