-- Reads a line as it stands: all waiter rows of a lock (kind 1) or a semaphore (kind 5) in their order, live or
-- ended. For the rows before a client's own (end_waiter.sql), and for an ended row to use again.
-- It locks nothing and waits for nothing.
SELECT p.slot,
       CAST(p.fence AS UNSIGNED) AS sequence,
       p.status = 1
          AND p.deadline > UTC_TIMESTAMP(6)
          AND p.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6)) AS live,
       p.count AS number,
       p.previous AS units,
       p.highest AS locks,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', p.deadline) AS deadline,
       TIMESTAMPDIFF(MICROSECOND, p.modify_time, UTC_TIMESTAMP(6)) AS age,
       HEX(p.holder) AS token,
       p.held_by,
       p.description
  FROM t_tag_lock p FORCE INDEX (PRIMARY)
 WHERE p.lock_name = :name
   AND p.kind = 8
   AND p.lowest = :kind
 ORDER BY p.count, p.slot
