-- Changes counters, and keeps in the client's change row what became of each: all of it or nothing.
-- It runs once for each number: only while the change row has the number before it.
-- Verdict: the change row has number :n; of a single change also the insert id.
-- Locks the change row, then the counters in the order of :rows. A counter that is missing or locked by
-- another transaction is skipped: it has no answer. If all were skipped, nothing is written.
INSERT INTO t_tag_lock
  (lock_name, kind, slot, fence, status, previous, count, lowest, highest, deadline, answer, modify_time)
SELECT
  IF(k.i IS NULL, :change_row, MAX(k.lock_name)),
  IF(k.i IS NULL, 7, 2),
  IF(k.i IS NULL, :slot, 0),
  IF(k.i IS NULL, :n, MAX(k.fence)),
  IF(k.i IS NULL, 1, MAX(IF(k.ok, k.requires <> 2, k.status))),
  MAX(IF(k.ok, k.value, k.previous)),
  MAX(IF(k.ok, k.after, k.count)),
  MAX(IF(k.ok AND k.requires, k.low, k.lowest)),
  MAX(IF(k.ok AND k.requires, k.high, k.highest)),
  IF(k.i IS NULL, '1970-01-01', MAX(IF(NOT k.ok, k.deadline, CASE
    WHEN k.requires = 2 THEN '1970-01-01'
    WHEN NOT (k.restart OR k.ended OR k.length AND k.deadline > TIMESTAMPADD(MICROSECOND, k.length, UTC_TIMESTAMP(6)))
      THEN k.deadline
    WHEN k.length THEN TIMESTAMPADD(MICROSECOND, k.length, UTC_TIMESTAMP(6))
    ELSE '9999-12-31'
  END))),
  IF(k.i IS NULL, GROUP_CONCAT(k.i, ' ', IF(k.ok, 1, IF(k.unset, 3, 2)), ' ', k.value, ' ', IF(k.ok, k.after, k.value)), NULL),
  -- The insert id is unsigned, and 0 means nothing: 0 and the least value trade places.
  IF(k.i IS NULL,
    IF(LAST_INSERT_ID(CASE WHEN COUNT(*) > 1 OR NOT MAX(k.ok) THEN 0
        WHEN MAX(IF(k.ok, IF(k.keep, k.after, k.value), 0)) = 0 THEN -9223372036854775808
        WHEN MAX(IF(k.ok, IF(k.keep, k.after, k.value), 0)) = -9223372036854775808 THEN 0
        ELSE CAST(MAX(IF(k.ok, IF(k.keep, k.after, k.value), 0)) AS SIGNED) END),
      UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)),
    MAX(IF(k.ok, UTC_TIMESTAMP(6), k.modify_time)))
FROM (
  SELECT c.*,
    CASE c.requires
      WHEN 1 THEN c.unset
      WHEN 2 THEN NOT c.unset
      ELSE c.value BETWEEN c.first AND c.last
        AND c.keep * c.value + c.least >= c.lowest
        AND c.keep * c.value + c.most <= c.highest
    END ok,
    CASE c.requires
      WHEN 1 THEN c.step
      WHEN 2 THEN 0
      ELSE c.keep * c.value + c.step * IF(c.times = 1, 1,
        LEAST(
          ABS(c.value - IF(c.step < 0, GREATEST(c.edge, c.lowest), LEAST(c.edge, c.highest))),
          c.times * ABS(c.step)
        ) DIV ABS(c.step))
    END after
  FROM (
    SELECT
      v.i, v.requires, v.keep, v.times, v.length, v.restart, v.low, v.high, v.step, v.edge, v.first, v.last, v.least, v.most,
      t.lock_name, t.fence, t.status, t.previous, t.count, t.lowest, t.highest, t.deadline, t.modify_time,
      t.deadline = '1970-01-01' unset,
      -- A window ends for a caller no later than its own length behind the last change.
      t.deadline <= UTC_TIMESTAMP(6)
        OR v.length > 0 AND t.modify_time <= TIMESTAMPADD(MICROSECOND, -v.length, UTC_TIMESTAMP(6)) ended,
      CAST(IF(t.deadline <= UTC_TIMESTAMP(6)
        OR v.length > 0 AND t.modify_time <= TIMESTAMPADD(MICROSECOND, -v.length, UTC_TIMESTAMP(6)), 0, t.count)
        AS DECIMAL(30, 0)) value
    FROM t_tag_lock o FORCE INDEX (PRIMARY)
    STRAIGHT_JOIN (
      SELECT v.*
      FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
        i FOR ORDINALITY,
        name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
        requires TINYINT PATH '$[1]',
        keep TINYINT PATH '$[2]',
        step DECIMAL(30, 0) PATH '$[3]',
        times INT PATH '$[4]',
        edge DECIMAL(30, 0) PATH '$[5]',
        first DECIMAL(30, 0) PATH '$[6]',
        last DECIMAL(30, 0) PATH '$[7]',
        least DECIMAL(30, 0) PATH '$[8]',
        most DECIMAL(30, 0) PATH '$[9]',
        length BIGINT PATH '$[10]',
        restart TINYINT PATH '$[11]',
        low BIGINT PATH '$[12]',
        high BIGINT PATH '$[13]'
      )) v
      LIMIT 100000
    ) v
    STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
      ON t.lock_name = v.name AND t.kind = 2 AND t.slot = 0
    WHERE o.lock_name = :change_row AND o.kind = 7 AND o.slot = :slot
      AND o.holder = :client AND o.fence = :last
    LIMIT 100000
    FOR UPDATE SKIP LOCKED
  ) c
  LIMIT 100000
) k
GROUP BY k.i WITH ROLLUP
HAVING COUNT(*) > 0
ON DUPLICATE KEY UPDATE
  fence = VALUES(fence),
  status = VALUES(status),
  previous = VALUES(previous),
  count = VALUES(count),
  lowest = VALUES(lowest),
  highest = VALUES(highest),
  deadline = VALUES(deadline),
  answer = VALUES(answer),
  modify_time = VALUES(modify_time)
