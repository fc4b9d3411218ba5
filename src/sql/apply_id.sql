-- Adds to a counter for an operation id whose row is not decided (open_id.sql): both rows or neither.
-- Verdict: the id's row (read_ids.sql).
-- Locks the id's row, then the counter, without a stripe; it skips what is locked.
INSERT INTO t_tag_lock
  (lock_name, kind, slot, holder, status, previous, count, deadline, modify_time)
SELECT
  IF(r.is_id, :id, k.lock_name),
  IF(r.is_id, 3, 2),
  0,
  IF(r.is_id, :meaning, k.holder),
  IF(r.is_id, IF(k.ok, 1, 2), 1),
  k.value,
  IF(k.ok, k.value + :step, k.value),
  CASE
    WHEN r.is_id THEN k.forgotten
    WHEN NOT (k.ended OR :length > 0 AND k.deadline > TIMESTAMPADD(MICROSECOND, :length, UTC_TIMESTAMP(6))) THEN k.deadline
    WHEN :length > 0 THEN TIMESTAMPADD(MICROSECOND, :length, UTC_TIMESTAMP(6))
    ELSE '9999-12-31'
  END,
  UTC_TIMESTAMP(6)
FROM (
  SELECT c.*,
    c.value BETWEEN :low AND :high
      AND c.value + CAST(:step AS DECIMAL(30, 0)) BETWEEN c.lowest AND c.highest ok
  FROM (
    SELECT
      o.deadline forgotten, t.lock_name, t.holder, t.deadline, t.lowest, t.highest,
      t.deadline <= UTC_TIMESTAMP(6)
        OR :length > 0 AND t.modify_time <= TIMESTAMPADD(MICROSECOND, -:length, UTC_TIMESTAMP(6)) ended,
      CAST(IF(t.deadline <= UTC_TIMESTAMP(6)
        OR :length > 0 AND t.modify_time <= TIMESTAMPADD(MICROSECOND, -:length, UTC_TIMESTAMP(6)), 0, t.count)
        AS DECIMAL(30, 0)) value
    FROM t_tag_lock o FORCE INDEX (PRIMARY)
    STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
      ON t.lock_name = :counter AND t.kind = 2 AND t.slot = 0
    WHERE o.lock_name = :id AND o.kind = 3 AND o.slot = 0
      AND o.status = 0 AND o.holder = :meaning AND o.deadline > UTC_TIMESTAMP(6)
    LIMIT 1
    FOR UPDATE SKIP LOCKED
  ) c
  LIMIT 1
) k
STRAIGHT_JOIN (SELECT 1 is_id UNION ALL SELECT 0) r ON r.is_id OR k.ok
ON DUPLICATE KEY UPDATE
  holder = VALUES(holder),
  status = VALUES(status),
  previous = VALUES(previous),
  count = VALUES(count),
  deadline = VALUES(deadline),
  modify_time = VALUES(modify_time)
