-- Writes the hint that somebody waits: into the row of a lock (kind 1), or into slot 0 of a semaphore (kind 5).
-- It stands for an hour and is written again when less than half is left. Nothing else of the row changes.
-- Verdict: the insert id is 1 if the hint was written; 0 means that it stands already, or that the row is
-- missing.
-- Waits for that one row, and holds nothing meanwhile. A waiter row is only taken behind it (place.sql).
INSERT INTO t_tag_lock
       (lock_name, kind, slot, wanted_until)
SELECT t.lock_name,
       t.kind,
       t.slot,
       IF(LAST_INSERT_ID(1), TIMESTAMPADD(HOUR, 1, UTC_TIMESTAMP(6)), UTC_TIMESTAMP(6))
  FROM t_tag_lock t FORCE INDEX (PRIMARY)
 WHERE t.lock_name = :name
   AND t.kind = :kind
   AND t.slot = 0
   AND t.wanted_until < TIMESTAMPADD(MINUTE, 30, UTC_TIMESTAMP(6))
   FOR UPDATE
ON DUPLICATE KEY UPDATE
       wanted_until = VALUES(wanted_until)
