-- Creates the missing row of a lock, an election or the slot of a job; the row is born granted.
-- Verdict: the insert id is the last fencing token of the block; 0 means that the row exists (or that the
-- statement came late).
-- Waits for the stripe's row, whose count is the floor of fencing tokens. It takes no lock on a row that exists.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, create_time, modify_time)
SELECT :name,
       :kind,
       :slot + s.slot,
       :token,
       1,
       LAST_INSERT_ID(GREATEST(s.count, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :block),
       TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6)),
       :description,
       :who,
       UTC_TIMESTAMP(6),
       UTC_TIMESTAMP(6)
  FROM t_tag_lock s FORCE INDEX (PRIMARY)
 WHERE s.lock_name = :stripe
   AND s.kind = 0
   AND s.slot = 0
   AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
   AND NOT EXISTS (SELECT 1
                     FROM t_tag_lock x FORCE INDEX (PRIMARY)
                    WHERE x.lock_name = :name
                      AND x.kind = :kind
                      AND x.slot = :slot + s.slot)
   FOR UPDATE
ON DUPLICATE KEY UPDATE
       modify_time = IF(LAST_INSERT_ID(0) = 0, t_tag_lock.modify_time, VALUES(modify_time))
