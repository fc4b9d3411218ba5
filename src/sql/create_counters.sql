-- Makes the rows of counters that have none: not set, so that nothing changes for a reader.
-- Verdict: none is needed; the change is sent again.
-- Waits for the stripes, which :rows names in ascending order, and holds nothing else meanwhile.
INSERT INTO t_tag_lock
  (lock_name, kind, slot, create_time, modify_time)
SELECT k.name, 2, 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
FROM (
  SELECT v.name, s.slot zero
  FROM (
    SELECT v.*
    FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
      stripe VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
      name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]'
    )) v
    LIMIT 100000
  ) v
  STRAIGHT_JOIN t_tag_lock s FORCE INDEX (PRIMARY)
    ON s.lock_name = v.stripe AND s.kind = 0 AND s.slot = 0
  LIMIT 100000
  FOR UPDATE
) k
WHERE IF(k.zero = 0, NOT EXISTS (
  SELECT 1 FROM t_tag_lock x FORCE INDEX (PRIMARY)
  WHERE x.lock_name = k.name AND x.kind = 2 AND x.slot = k.zero
), 0)
ON DUPLICATE KEY UPDATE modify_time = t_tag_lock.modify_time
