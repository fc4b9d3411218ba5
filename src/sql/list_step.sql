-- The name up to which one query of a list goes, so that it looks at no more than :limit rows; no row if that is
-- the end of the range.
-- It locks nothing and waits for nothing.
SELECT t.lock_name
  FROM t_tag_lock t FORCE INDEX (PRIMARY)
 WHERE t.lock_name >= :first_name
   AND t.lock_name <= :last_name
 ORDER BY t.lock_name, t.kind, t.slot
 LIMIT :limit, 1
