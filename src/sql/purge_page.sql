-- Reads which rows nobody needs any more: a page of :limit rows behind (:name, :kind, :slot). may_go is 1 for a
-- row that may go (done slots of jobs only with :done 1), 2 for a lock's row that a group held and that may go
-- once it is free (holds_ended.sql, then close.sql), 0 for others. A hold's row stays as long as its lock's row
-- has a lower fence. Rows that changed within :age microseconds stay.
-- It locks nothing and waits for nothing.
SELECT t.lock_name,
       t.kind,
       t.slot,
       CAST(t.fence AS UNSIGNED) AS fence,
       IF(t.kind = 1 AND t.status = 3, 2, 1)
       * (t.wanted_until <= UTC_TIMESTAMP(6)
          AND TIMESTAMPDIFF(MICROSECOND, t.modify_time, UTC_TIMESTAMP(6)) >= :age
          AND CASE
                   WHEN t.kind = 1 AND t.status = 3 THEN NOT EXISTS (SELECT 1
                                                                       FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                                                      WHERE x.lock_name = t.lock_name
                                                                        AND x.kind = 6
                                                                        AND x.status = 1
                                                                        AND x.deadline > UTC_TIMESTAMP(6))
                   WHEN t.kind = 6 AND t.deadline > UTC_TIMESTAMP(6) AND t.status = 1 THEN 0
                   WHEN t.kind = 6 THEN NOT EXISTS (SELECT 1
                                                      FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                                     WHERE x.lock_name = t.lock_name
                                                       AND x.kind = 1
                                                       AND x.slot = 0
                                                       AND x.status = 3
                                                       AND x.fence < t.fence)
                   WHEN t.kind IN (1, 4, 5, 8) THEN t.status = 0
                                                    OR t.deadline <= UTC_TIMESTAMP(6)
                                                    OR t.status = 4 AND :done > 0
                   WHEN t.kind IN (2, 3) THEN t.deadline <= UTC_TIMESTAMP(6)
                   ELSE 0
              END) AS may_go
  FROM t_tag_lock t FORCE INDEX (PRIMARY)
 WHERE t.lock_name >= :name
   AND (t.lock_name <> :name OR t.kind > :kind OR t.kind = :kind AND t.slot > :slot)
 ORDER BY t.lock_name, t.kind, t.slot
 LIMIT :limit
