-- Takes a place in line: writes the client's waiter row for a lock (kind 1) or a semaphore (kind 5) at the
-- sequence :n, if the row is at :n - 1 and the hint stands (hint.sql). :units is 1 for an exclusive request, 0
-- for a shared one, or the number of permits.
-- Verdict: the insert id is the number in the line; 0 means no hint, another sequence, a missing row, or that
-- the statement came late.
-- Waits for the waiter row alone; the highest number in the line and the hint are read without a lock.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, count, previous, lowest, highest, deadline, description, held_by, modify_time)
SELECT p.lock_name,
       p.kind,
       p.slot,
       :token,
       1,
       :n,
       LAST_INSERT_ID(GREATEST(COALESCE((SELECT MAX(x.count)
                                           FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                          WHERE x.lock_name = p.lock_name
                                            AND x.kind = p.kind), 0),
                               TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + 1),
       :units,
       :kind,
       1,
       TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6)),
       :description,
       :who,
       UTC_TIMESTAMP(6)
  FROM t_tag_lock p FORCE INDEX (PRIMARY)
 WHERE p.lock_name = :name
   AND p.kind = 8
   AND p.slot = :waiter_slot
   AND p.fence + 1 = :n
   AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
   AND IF(p.kind = 8, EXISTS (SELECT 1
                                FROM t_tag_lock h FORCE INDEX (PRIMARY)
                               WHERE h.lock_name = p.lock_name
                                 AND h.kind = :kind
                                 AND h.slot = 0
                                 AND h.wanted_until > TIMESTAMPADD(MINUTE, 29, UTC_TIMESTAMP(6))), 0)
   FOR UPDATE
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       count = VALUES(count),
       previous = VALUES(previous),
       lowest = VALUES(lowest),
       highest = VALUES(highest),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
