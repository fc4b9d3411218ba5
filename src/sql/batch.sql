-- Many requests in one statement, each on a row of its own: verb 1 acquires as acquire.sql (a lock whose hint
-- stands as acquire_unwanted.sql), 2 releases as release.sql (also with a minimum hold, also a finished slot of
-- a job), 3 renews, extends or describes as renew.sql. The columns are those parameters.
-- Verdict: none in the answer. Each row is read back by its token (read.sql, in the same packet).
-- Locks the rows in the order of :rows, each by its whole key, and skips those that other sessions have locked.
-- It never waits.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, modify_time)
SELECT t.lock_name,
       t.kind,
       t.slot,
       IF(v.verb = 1, UNHEX(v.token), t.holder),
       CASE
            WHEN v.verb <> 2 THEN 1
            WHEN v.keep > 0 THEN 2
            ELSE v.status
       END,
       IF(v.verb = 1,
          GREATEST(t.fence, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + v.block,
          t.fence),
       CASE
            WHEN v.verb = 1 THEN TIMESTAMPADD(MICROSECOND, v.ttl, UTC_TIMESTAMP(6))
            WHEN v.verb = 3 THEN GREATEST(t.deadline, TIMESTAMPADD(MICROSECOND, v.ttl, UTC_TIMESTAMP(6)))
            WHEN v.keep > 0 THEN TIMESTAMPADD(MICROSECOND, v.keep, UTC_TIMESTAMP(6))
            WHEN v.status = 4 THEN '9999-12-31'
            ELSE t.deadline
       END,
       COALESCE(v.description, IF(v.verb = 1, '', t.description)),
       IF(v.verb = 1, COALESCE(v.who, ''), t.held_by),
       UTC_TIMESTAMP(6)
  FROM (SELECT v.*
          FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
                   i FOR ORDINALITY,
                   verb TINYINT PATH '$[0]',
                   name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]',
                   kind TINYINT UNSIGNED PATH '$[2]',
                   slot INT UNSIGNED PATH '$[3]',
                   token CHAR(32) CHARACTER SET latin1 PATH '$[4]',
                   fence BIGINT UNSIGNED PATH '$[5]',
                   block BIGINT UNSIGNED PATH '$[6]',
                   ttl BIGINT PATH '$[7]',
                   status TINYINT UNSIGNED PATH '$[8]',
                   keep BIGINT PATH '$[9]',
                   description VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[10]',
                   who VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[11]')) v
         LIMIT 100000) v
       STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
       ON t.lock_name = v.name
      AND t.kind = v.kind
      AND t.slot = v.slot
 WHERE CASE v.verb
            WHEN 1 THEN (t.status = 0 OR t.deadline <= UTC_TIMESTAMP(6))
                        AND (IF(t.kind = 5,
                                COALESCE((SELECT x.wanted_until
                                            FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                           WHERE x.lock_name = t.lock_name
                                             AND x.kind = 5
                                             AND x.slot = 0), '1970-01-01'),
                                t.wanted_until) <= UTC_TIMESTAMP(6)
                             OR t.kind = 1 AND NOT EXISTS (SELECT 1
                                                            FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                                           WHERE x.lock_name = t.lock_name
                                                             AND x.kind = 8
                                                             AND x.status = 1
                                                             AND x.lowest = t.kind
                                                             AND x.deadline > UTC_TIMESTAMP(6)
                                                             AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))))
                        AND t.holder <> UNHEX(v.token)
                        AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
            ELSE t.holder = UNHEX(v.token)
                 AND v.fence IN (0, t.fence)
                 AND t.status = 1
                 AND (v.verb = 2 OR t.deadline > UTC_TIMESTAMP(6))
       END
   FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
