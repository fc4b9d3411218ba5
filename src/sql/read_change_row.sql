-- Reads a client's change row: number of its last statement, and what became of the changes in it.
-- No row if it is not this client's any more.
-- Locks nothing.
SELECT CAST(o.fence AS SIGNED), o.answer
FROM t_tag_lock o FORCE INDEX (PRIMARY)
WHERE o.lock_name = :change_row AND o.kind = 7 AND o.slot = :slot AND o.holder = :client
