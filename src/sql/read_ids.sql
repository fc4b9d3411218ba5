-- Reads the rows of operation ids: position, whether the id stands for the same addition, status (0 not
-- decided, 1 added, 2 refused), value before, value after. No row for an id that has none.
-- Locks nothing.
SELECT
  CAST(v.i AS SIGNED), CAST(o.holder = UNHEX(v.meaning) AS SIGNED), CAST(o.status AS SIGNED), o.previous, o.count
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
  i FOR ORDINALITY,
  id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]',
  meaning CHAR(32) CHARACTER SET ascii PATH '$[2]'
)) v
STRAIGHT_JOIN t_tag_lock o FORCE INDEX (PRIMARY)
  ON o.lock_name = v.id AND o.kind = 3 AND o.slot = 0 AND o.deadline > UTC_TIMESTAMP(6)
