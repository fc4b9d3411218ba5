-- Creates the missing waiter row of a client and takes a place in line with it, if the hint stands (hint.sql);
-- if it does not, the row is born ended at the sequence :n - 1, for place.sql.
-- Verdict: the insert id is the number in the line; 0 means no place: the row exists, there is no hint, or the
-- statement came late.
-- Waits for the stripe's row; everything else is read without a lock.
INSERT INTO t_tag_lock
       (lock_name, kind, slot, holder, status, fence, count, previous, lowest, highest, deadline, description, held_by,
        create_time, modify_time)
SELECT k.name,
       8,
       :waiter_slot + k.zero,
       :token,
       k.stands,
       :n - IF(k.stands, 0, 1),
       IF(k.stands, LAST_INSERT_ID(k.number), LAST_INSERT_ID(0)),
       :units,
       :kind,
       1,
       IF(k.stands, TIMESTAMPADD(MICROSECOND, :ttl, UTC_TIMESTAMP(6)), '1970-01-01'),
       :description,
       :who,
       UTC_TIMESTAMP(6),
       UTC_TIMESTAMP(6)
  FROM (SELECT s.slot AS zero,
               :name AS name,
               (SELECT h.wanted_until > TIMESTAMPADD(MINUTE, 29, UTC_TIMESTAMP(6))
                  FROM t_tag_lock h FORCE INDEX (PRIMARY)
                 WHERE h.lock_name = :name
                   AND h.kind = :kind
                   AND h.slot = s.slot) IS TRUE AS stands,
               GREATEST(COALESCE((SELECT MAX(x.count)
                                    FROM t_tag_lock x FORCE INDEX (PRIMARY)
                                   WHERE x.lock_name = :name
                                     AND x.kind = 8 + s.slot), 0),
                        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + 1 AS number
          FROM t_tag_lock s FORCE INDEX (PRIMARY)
         WHERE s.lock_name = :stripe
           AND s.kind = 0
           AND s.slot = 0
           AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) <= :not_after
           AND NOT EXISTS (SELECT 1
                             FROM t_tag_lock x FORCE INDEX (PRIMARY)
                            WHERE x.lock_name = :name
                              AND x.kind = 8
                              AND x.slot = :waiter_slot + s.slot)
         LIMIT 1
           FOR UPDATE) k
ON DUPLICATE KEY UPDATE
       modify_time = IF(LAST_INSERT_ID(0) = 0, t_tag_lock.modify_time, VALUES(modify_time))
