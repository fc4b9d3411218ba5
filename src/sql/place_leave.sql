-- Leaves the line: ends the client's waiter row and sets its sequence to :n, also if the place at :n never came,
-- so that a late copy of place.sql is refused. It is sent until it is answered; create_all.sql with the sequence
-- :n does the same for a missing row.
-- Verdict: the insert id is :n; 0 means that the row is missing, or that it has gone on to a later sequence or
-- to another client.
-- Waits for the waiter row alone.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, status, fence, modify_time)
SELECT p.lock_name,
       p.kind,
       p.slot,
       0,
       LAST_INSERT_ID(:n),
       UTC_TIMESTAMP(6)
  FROM t_tag_lock p FORCE INDEX (PRIMARY)
 WHERE p.lock_name = :name
   AND p.kind = 8
   AND p.slot = :waiter_slot
   AND (p.fence < :n OR p.fence = :n AND p.holder = :token)
   FOR UPDATE
ON DUPLICATE KEY UPDATE
       status = VALUES(status),
       fence = VALUES(fence),
       modify_time = VALUES(modify_time)
