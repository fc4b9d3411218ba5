-- Says whether the client could lock a row now: an application's open transaction may hold it although it looks
-- free. Only a client that counts the time of a dead first waiter sends it.
-- Verdict: one row with the fence, or none: missing, or locked.
-- Locks the row for the time of the statement and skips it if another session has locked it. It writes nothing.
SELECT CAST(t.fence AS UNSIGNED) AS fence
  FROM t_tag_lock t FORCE INDEX (PRIMARY)
 WHERE t.lock_name = :name
   AND t.kind = :kind
   AND t.slot = :slot
   FOR UPDATE SKIP LOCKED
