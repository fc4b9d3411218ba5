-- Acquires a lock that acquire.sql refused, without a place in line: if its hint stands, but no live waiter row
-- exists; also a lock that a group held, if none of the holds is active (holds_ended.sql comes first).
-- Verdict: the insert id is the last fencing token of the block; 0 means refused, missing or locked.
-- Locks the row by its whole key and skips it if another session has locked it. It never waits.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, deadline, description, held_by, modify_time)
SELECT t.lock_name,
       t.kind,
       t.slot,
       :token,
       1,
       LAST_INSERT_ID(GREATEST(t.fence,
                               TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
                               IF(t.status = 3,
                                  (SELECT COALESCE(MAX(x.fence), 0)
                                     FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                    WHERE x.lock_name = t.lock_name
                                      AND x.kind = 6),
                                  0)) + :block),
       TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6)),
       :description,
       :who,
       UTC_TIMESTAMP(6)
  FROM t_tag_lock t FORCE INDEX (PRIMARY)
 WHERE t.lock_name = :name
   AND t.kind = 1
   AND t.slot = 0
   AND CASE t.status
            WHEN 0 THEN 1
            WHEN 3 THEN NOT EXISTS (SELECT 1
                                     FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                    WHERE x.lock_name = t.lock_name
                                      AND x.kind = 6
                                      AND x.status = 1)
            ELSE t.deadline <= UTC_TIMESTAMP(6)
       END
   AND (t.wanted_until <= UTC_TIMESTAMP(6)
        OR NOT EXISTS (SELECT 1
                         FROM t_tag_lock x FORCE INDEX (PRIMARY)
                        WHERE x.lock_name = t.lock_name
                          AND x.kind = 8
                          AND x.status = 1
                          AND x.lowest = t.kind
                          AND x.deadline > UTC_TIMESTAMP(6)
                          AND x.deadline <= TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(6))))
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
