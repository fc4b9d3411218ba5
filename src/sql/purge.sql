-- Deletes those of the rows in :rows that nobody needs any more (purge_page.sql), as they stand when they are
-- locked, if their fence is not above floor, to which raise_floor.sql has raised their stripe.
-- Verdict: the affected rows count what went, for people only. A server that undoes a killed DELETE and reports
-- success leaves the rows to the next page.
-- Locks the rows in the order of :rows, each by its whole key, and skips those that other sessions have locked.
-- It never waits; it has no subquery, because a server may lock what a subquery of a DELETE reads.
DELETE u
  FROM (SELECT t.lock_name,
               t.kind,
               t.slot
          FROM (SELECT v.*
                  FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
                           i FOR ORDINALITY,
                           name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
                           kind TINYINT UNSIGNED PATH '$[1]',
                           slot INT UNSIGNED PATH '$[2]',
                           floor BIGINT UNSIGNED PATH '$[3]')) v
                 LIMIT 100000) v
               STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
               ON t.lock_name = v.name
              AND t.kind = v.kind
              AND t.slot = v.slot
         WHERE t.wanted_until <= UTC_TIMESTAMP(6)
           AND TIMESTAMPDIFF(MICROSECOND, t.modify_time, UTC_TIMESTAMP(6)) >= :age
           AND CASE
                    WHEN t.kind IN (1, 4, 5, 6, 8) THEN t.status = 0
                                                        OR t.deadline <= UTC_TIMESTAMP(6)
                                                        OR t.status = 4 AND :done > 0
                    WHEN t.kind IN (2, 3) THEN t.deadline <= UTC_TIMESTAMP(6)
                    ELSE 0
               END
           AND (t.kind = 8 OR t.fence <= v.floor)
         LIMIT 100000
           FOR UPDATE SKIP LOCKED) k
       STRAIGHT_JOIN t_tag_lock u FORCE INDEX (PRIMARY)
       ON u.lock_name = k.lock_name
      AND u.kind = k.kind
      AND u.slot = k.slot
