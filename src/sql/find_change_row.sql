-- Reads a change row that no client uses: its slot and number. Clients that closed left it, or one that has
-- changed nothing for a day. Any of them, so that clients that begin together do not choose the same.
-- Locks nothing.
SELECT CAST(o.slot AS SIGNED), CAST(o.fence AS SIGNED)
FROM t_tag_lock o FORCE INDEX (PRIMARY)
WHERE o.lock_name = :change_row AND o.kind = 7
  AND (o.status = 0 OR o.modify_time <= TIMESTAMPADD(DAY, -1, UTC_TIMESTAMP(6)))
ORDER BY RAND()
LIMIT 1
