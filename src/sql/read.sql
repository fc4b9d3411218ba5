-- Reads rows by their keys: what became of each request of a batch or of a single statement (by its token), why
-- it was refused, and what `inspect` shows. `now` is the server's time, all times are microseconds since 1970; a
-- missing row has no status.
-- It locks nothing and waits for nothing.
SELECT v.i,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now,
       t.holder = UNHEX(v.token) AS mine,
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
  FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
                   i FOR ORDINALITY,
                   name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
                   kind TINYINT UNSIGNED PATH '$[1]',
                   slot INT UNSIGNED PATH '$[2]',
                   token CHAR(32) CHARACTER SET latin1 PATH '$[3]')) v
       LEFT JOIN t_tag_lock t FORCE INDEX (PRIMARY)
       ON t.lock_name = v.name
      AND t.kind = v.kind
      AND t.slot = v.slot
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
