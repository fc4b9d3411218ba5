-- Turns an exclusive lease into a shared hold: the lock's row goes to the group and the client's free hold row
-- becomes active.
-- Verdict: the insert id is the fence of the lease, which stays its fencing token; 0 means that the lease has
-- ended, or that the hold's row is missing or active.
-- Waits for the client's own hold row, then for the lock's row.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, modify_time)
SELECT k.lock_name,
       r.kind,
       IF(r.kind = 1, 0, :hold_slot),
       IF(r.kind = 1, CAST(:group AS BINARY(16)), CAST(:hold_token AS BINARY(16))),
       IF(r.kind = 1, 3, 1),
       LAST_INSERT_ID(k.fence),
       IF(r.kind = 1, '9999-12-31', TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6))),
       k.description,
       k.held_by,
       UTC_TIMESTAMP(6)
  FROM (SELECT t.lock_name,
               t.fence,
               t.description,
               t.held_by
          FROM t_tag_lock h FORCE INDEX (PRIMARY)
               STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
               ON t.lock_name = h.lock_name
              AND t.kind = 1
              AND t.slot = 0
         WHERE h.lock_name = :name
           AND h.kind = 6
           AND h.slot = :hold_slot
           AND h.status = 0
           AND h.holder <> :hold_token
           AND t.holder = :token
           AND t.fence = :fence
           AND t.status = 1
           AND t.deadline > UTC_TIMESTAMP(6)
         LIMIT 1
           FOR UPDATE) k
       STRAIGHT_JOIN (SELECT 1 AS kind
                       UNION ALL
                      SELECT 6) r
       ON TRUE
ON DUPLICATE KEY UPDATE
       holder = VALUES(holder),
       status = VALUES(status),
       fence = VALUES(fence),
       deadline = VALUES(deadline),
       description = VALUES(description),
       held_by = VALUES(held_by),
       modify_time = VALUES(modify_time)
