-- Adds to counters once for each operation id: the ids' rows and the counters, all of it or nothing.
-- An id that has a row is left alone, so the statement may be sent again.
-- Verdict: the ids' rows (read_ids.sql). An id without one had its counter missing or locked.
-- Waits for the stripes of the ids, which :rows names in ascending order, and holds nothing else meanwhile.
-- Then locks the counters; one that is locked by another transaction is skipped, and the ids of it.
INSERT INTO t_tag_lock
  (lock_name, kind, slot, holder, status, previous, count, deadline, create_time, modify_time)
SELECT
  IF(r.is_id, k.id, k.lock_name),
  IF(r.is_id, 3, 2),
  0,
  IF(r.is_id, UNHEX(k.meaning), k.holder),
  IF(r.is_id, IF(k.number <= k.fit, 1, 2), 1),
  IF(r.is_id, k.value + k.step * (LEAST(k.number, k.fit + 1) - 1), k.value),
  IF(r.is_id, k.value + k.step * LEAST(k.number, k.fit), k.value + k.step * k.fit),
  CASE
    WHEN r.is_id THEN TIMESTAMPADD(MICROSECOND, k.retention, UTC_TIMESTAMP(6))
    WHEN NOT (k.ended OR k.length AND k.deadline > TIMESTAMPADD(MICROSECOND, k.length, UTC_TIMESTAMP(6))) THEN k.deadline
    WHEN k.length THEN TIMESTAMPADD(MICROSECOND, k.length, UTC_TIMESTAMP(6))
    ELSE '9999-12-31'
  END,
  IF(r.is_id, UTC_TIMESTAMP(6), k.create_time),
  UTC_TIMESTAMP(6)
FROM (
  -- Each of the ids of one counter adds the same. The first `fit` of them are admitted.
  SELECT n.*,
    CASE
      WHEN n.value < n.first OR n.value > n.last THEN 0
      WHEN n.step > 0 THEN LEAST(n.ids, LEAST(n.last - n.value, n.ids * n.step) DIV n.step + 1)
      WHEN n.step < 0 THEN LEAST(n.ids, LEAST(n.value - n.first, -n.ids * n.step) DIV -n.step + 1)
      ELSE n.ids
    END fit
  FROM (
    SELECT c.*,
      GREATEST(c.low, c.lowest - c.step) first,
      LEAST(c.high, c.highest - c.step) last,
      ROW_NUMBER() OVER (PARTITION BY c.lock_name ORDER BY c.i) number,
      COUNT(*) OVER (PARTITION BY c.lock_name) ids
    FROM (
      SELECT
        g.i, g.id, g.meaning, g.step, g.low, g.high, g.length, g.retention,
        t.lock_name, t.holder, t.create_time, t.deadline, t.lowest, t.highest,
        t.deadline <= UTC_TIMESTAMP(6)
          OR g.length > 0 AND t.modify_time <= TIMESTAMPADD(MICROSECOND, -g.length, UTC_TIMESTAMP(6)) ended,
        CAST(IF(t.deadline <= UTC_TIMESTAMP(6)
          OR g.length > 0 AND t.modify_time <= TIMESTAMPADD(MICROSECOND, -g.length, UTC_TIMESTAMP(6)), 0, t.count)
          AS DECIMAL(30, 0)) value
      FROM (
        SELECT v.*, s.slot zero
        FROM (
          SELECT v.*
          FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
            i FOR ORDINALITY,
            stripe VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
            id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]',
            meaning CHAR(32) CHARACTER SET ascii PATH '$[2]',
            counter VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[3]',
            step DECIMAL(30, 0) PATH '$[4]',
            low DECIMAL(30, 0) PATH '$[5]',
            high DECIMAL(30, 0) PATH '$[6]',
            length BIGINT PATH '$[7]',
            retention BIGINT PATH '$[8]'
          )) v
          LIMIT 100000
        ) v
        STRAIGHT_JOIN t_tag_lock s FORCE INDEX (PRIMARY)
          ON s.lock_name = v.stripe AND s.kind = 0 AND s.slot = 0
        LIMIT 100000
        FOR UPDATE
      ) g
      STRAIGHT_JOIN t_tag_lock t FORCE INDEX (PRIMARY)
        ON t.lock_name = g.counter AND t.kind = 2 AND t.slot = g.zero
      WHERE IF(g.zero = 0, NOT EXISTS (
        SELECT 1 FROM t_tag_lock x FORCE INDEX (PRIMARY)
        WHERE x.lock_name = g.id AND x.kind = 3 AND x.slot = g.zero AND x.deadline > UTC_TIMESTAMP(6)
      ), 0)
      LIMIT 100000
      FOR UPDATE SKIP LOCKED
    ) c
    LIMIT 100000
  ) n
  LIMIT 100000
) k
STRAIGHT_JOIN (SELECT 1 is_id UNION ALL SELECT 0) r ON r.is_id OR k.number = 1 AND k.fit > 0
ON DUPLICATE KEY UPDATE
  holder = VALUES(holder),
  status = VALUES(status),
  previous = VALUES(previous),
  count = VALUES(count),
  deadline = VALUES(deadline),
  create_time = VALUES(create_time),
  modify_time = VALUES(modify_time)
