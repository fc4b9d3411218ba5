-- One look of a client at all semaphores for which it waits: for each name of :rows the free slots below
-- `permits`, those that have the client's token (slot and fence: the grant), the client's waiter row at the
-- sequence n and whether it stands (`waits`), the live waiters before it and the permits that they want, and the
-- first live waiter. A slot that has no row is in neither list. `now` is the server's time; all times are
-- microseconds since 1970.
-- It locks nothing and waits for nothing.
SELECT v.i,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', t.wanted_until) AS wanted_until,
       (SELECT GROUP_CONCAT(x.slot ORDER BY x.slot)
          FROM t_tag_lock x FORCE INDEX (PRIMARY)
         WHERE x.lock_name = v.name
           AND x.kind = 5
           AND x.slot < v.permits
           AND (x.status = 0 OR x.deadline <= UTC_TIMESTAMP(6))) AS free_permits,
       (SELECT GROUP_CONCAT(CONCAT(x.slot, ' ', x.fence) ORDER BY x.slot)
          FROM t_tag_lock x FORCE INDEX (PRIMARY)
         WHERE x.lock_name = v.name
           AND x.kind = 5
           AND x.slot < v.permits
           AND x.holder = UNHEX(v.token) AND x.status = 1) AS my_permits,
       p.holder = UNHEX(v.token) AND p.status = 1 AND p.fence = v.n AND p.deadline > UTC_TIMESTAMP(6) AS waits,
       CAST(p.fence AS UNSIGNED) AS sequence,
       p.count AS number,
       (SELECT COUNT(*)
          FROM t_tag_lock x FORCE INDEX (PRIMARY)
         WHERE x.lock_name = v.name
           AND x.kind = 8
           AND x.status = 1
           AND x.lowest = 5
           AND x.deadline > UTC_TIMESTAMP(6)
           AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))
           AND (x.count < p.count OR x.count = p.count AND x.slot < p.slot)) AS before_me,
       (SELECT COALESCE(SUM(x.previous), 0)
          FROM t_tag_lock x FORCE INDEX (PRIMARY)
         WHERE x.lock_name = v.name
           AND x.kind = 8
           AND x.status = 1
           AND x.lowest = 5
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
                   permits INT UNSIGNED PATH '$[4]')) v
       LEFT JOIN t_tag_lock t FORCE INDEX (PRIMARY)
       ON t.lock_name = v.name
      AND t.kind = 5
      AND t.slot = 0
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
                          AND x.lowest = 5
                          AND x.deadline > UTC_TIMESTAMP(6)
                          AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))
                        ORDER BY x.count, x.slot
                        LIMIT 1),
                      NULL)
