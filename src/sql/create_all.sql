-- Creates missing rows of any kind, several at once. A row of :rows with a token is born granted, one without is
-- born free; sequence is the fence with which a waiter row is born (0 for all others).
-- Verdict: none. Read each row by its token (read.sql), or go on with the statement that found it missing.
-- Waits for the rows of the stripes, in the order of :rows, which must ascend by stripe. It takes no lock on a
-- row that exists.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, create_time, modify_time)
SELECT k.name,
       k.kind,
       k.slot,
       COALESCE(UNHEX(k.token), ''),
       k.token IS NOT NULL,
       IF(k.token IS NULL,
          GREATEST(IF(k.kind = 8, 0, k.floor), k.sequence),
          GREATEST(k.floor, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + k.block),
       IF(k.token IS NULL, '1970-01-01', TIMESTAMPADD(MICROSECOND, k.ttl, UTC_TIMESTAMP(6))),
       COALESCE(k.description, ''),
       COALESCE(k.who, ''),
       UTC_TIMESTAMP(6),
       UTC_TIMESTAMP(6)
  FROM (SELECT v.*,
               s.count AS floor,
               s.slot AS zero
          FROM (SELECT v.*
                  FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
                           i FOR ORDINALITY,
                           stripe VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
                           name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]',
                           kind TINYINT UNSIGNED PATH '$[2]',
                           slot INT UNSIGNED PATH '$[3]',
                           sequence BIGINT UNSIGNED PATH '$[4]',
                           token CHAR(32) CHARACTER SET latin1 PATH '$[5]',
                           block BIGINT UNSIGNED PATH '$[6]',
                           ttl BIGINT PATH '$[7]',
                           description VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[8]',
                           who VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[9]')) v
                 LIMIT 100000) v
               STRAIGHT_JOIN t_tag_lock s FORCE INDEX (PRIMARY)
               ON s.lock_name = v.stripe
              AND s.kind = 0
              AND s.slot = 0
         WHERE TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
         LIMIT 100000
           FOR UPDATE) k
 WHERE NOT EXISTS (SELECT 1
                     FROM t_tag_lock x FORCE INDEX (PRIMARY)
                    WHERE x.lock_name = k.name
                      AND x.kind = k.kind
                      AND x.slot = k.slot + k.zero)
ON DUPLICATE KEY UPDATE
       modify_time = t_tag_lock.modify_time
