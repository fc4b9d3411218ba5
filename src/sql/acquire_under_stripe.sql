-- Acquires as acquire.sql does, with the stripe of the name locked first (`Stripes::EveryRequest`).
-- Verdict: the insert id is the last fencing token of the block; 0 means refused, missing or locked.
-- Waits for the stripe's row. Behind it, it skips the row if another session has locked it: nothing waits with a
-- stripe in hand.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, modify_time)
SELECT t.lock_name,
       t.kind,
       t.slot,
       :token,
       1,
       LAST_INSERT_ID(GREATEST(t.fence, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :block),
       TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6)),
       :description,
       :who,
       UTC_TIMESTAMP(6)
  FROM (SELECT s.slot AS zero
          FROM t_tag_lock s FORCE INDEX (PRIMARY)
         WHERE s.lock_name = :stripe
           AND s.kind = 0
           AND s.slot = 0
         LIMIT 1
           FOR UPDATE) k
       STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
       ON t.lock_name = :name
      AND t.kind = :kind
      AND t.slot = :slot + k.zero
 WHERE (t.status = 0 OR t.deadline <= UTC_TIMESTAMP(6))
   AND IF(t.kind = 5,
          COALESCE((SELECT x.wanted_until
                      FROM t_tag_lock x FORCE INDEX (PRIMARY)
                     WHERE x.lock_name = t.lock_name
                       AND x.kind = 5
                       AND x.slot = 0), '1970-01-01'),
          t.wanted_until) <= UTC_TIMESTAMP(6)
   AND t.holder <> :token
   AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
   FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
