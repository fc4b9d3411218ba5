-- Reads which of :rows have no row: position, and whether the stripe has its row.
-- Locks nothing.
SELECT CAST(v.i AS SIGNED), s.lock_name IS NOT NULL
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
  i FOR ORDINALITY,
  stripe VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
  name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]'
)) v
LEFT JOIN t_tag_lock t FORCE INDEX (PRIMARY)
  ON t.lock_name = v.name AND t.kind = 2 AND t.slot = 0
LEFT JOIN t_tag_lock s FORCE INDEX (PRIMARY)
  ON s.lock_name = v.stripe AND s.kind = 0 AND s.slot = 0
WHERE t.lock_name IS NULL
