PREPARE tag_lock_0 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (UNHEX(?),?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time)';

PREPARE tag_lock_1 FROM '
INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT ?,
    ?,
    0
  FROM DUAL
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=? OR FIND_IN_SET(?,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.previous=CAST(IF(t_tag_lock.deadline<=@tag_lock_now,0,t_tag_lock.count) AS DECIMAL(30,0)),
    t_tag_lock.count=0,
    t_tag_lock.deadline='1970-01-01 00:00:00',
    t_tag_lock.status=0,
    t_tag_lock.holder=UNHEX(?)';

PREPARE tag_lock_2 FROM '
INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (UNHEX(?),?,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE results=CONCAT(VALUES(seq),';',CONCAT(@tag_lock_granted,';',@tag_lock_rows))';

SET @tag_lock_changed=NULL,
    autocommit=0,
    wait_timeout=1,
    @tag_lock_0='d93244e7b08131ef10eda16a07176275',
    @tag_lock_1=42,
    @tag_lock_2=_utf8mb4 x'7072697a653a33',
    @tag_lock_3=2,
    @tag_lock_4=9,
    @tag_lock_5='12ea12eace7d655f471ce55e34f89b1b';

EXECUTE tag_lock_0
  USING @tag_lock_0,
    @tag_lock_1;

WITH v(name,position,verb,keeps,step,times) AS (VALUES ROW(_utf8mb4 x'7072697a653a31',0,12,0,1000,0),ROW(_utf8mb4 x'7072697a653a32',1,12,0,-9223372036854775808,0),ROW(_utf8mb4 x'7072697a653a33',2,13,0,0,0),ROW(_utf8mb4 x'7072697a653a34',3,9,1,-1,3),ROW(_utf8mb4 x'7072697a653a35',4,9,0,10,1))
  SELECT IF(ROW_COUNT()>0,:mark,0),
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(GROUP_CONCAT(IF(CASE v.verb WHEN 9 THEN CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN 1 AND 9223372036854775807 WHEN 12 THEN t.deadline='1970-01-01 00:00:00' WHEN 13 THEN NOT(t.deadline='1970-01-01 00:00:00') ELSE 0 END,v.position,NULL)),''),
    CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';',COALESCE(GROUP_CONCAT(CONCAT_WS(' ',v.position,t.status,t.holder=x'12ea12eace7d655f471ce55e34f89b1b',t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),IF(v.verb=9 AND CASE v.verb WHEN 9 THEN CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN 1 AND 9223372036854775807 WHEN 12 THEN t.deadline='1970-01-01 00:00:00' WHEN 13 THEN NOT(t.deadline='1970-01-01 00:00:00') ELSE 0 END,CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)),t.previous),IF(v.verb=9 AND CASE v.verb WHEN 9 THEN CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN 1 AND 9223372036854775807 WHEN 12 THEN t.deadline='1970-01-01 00:00:00' WHEN 13 THEN NOT(t.deadline='1970-01-01 00:00:00') ELSE 0 END,v.keeps*CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))+CAST(v.step AS DECIMAL(30,0))*IF(v.times=1,1,LEAST(ABS(CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))-0),v.times*ABS(CAST(v.step AS DECIMAL(30,0)))) DIV ABS(CAST(v.step AS DECIMAL(30,0)))),t.count),IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),''))
  INTO @tag_lock_decided,
    @tag_lock_now,
    @tag_lock_micros,
    @tag_lock_granted,
    @tag_lock_rows
  FROM v
  STRAIGHT_JOIN t_tag_lock t FORCE INDEX(PRIMARY)
  ON t.lock_name=v.name
  AND t.kind=2
  AND t.slot=0
  WHERE 1
  FOR UPDATE SKIP LOCKED;

INSERT INTO t_tag_lock (lock_name,kind,slot) WITH v(name,position,keeps,step,times) AS (VALUES ROW(_utf8mb4 x'7072697a653a34',3,1,-1,3),ROW(_utf8mb4 x'7072697a653a35',4,0,10,1))
  SELECT v.name,
    2,
    0
  FROM v
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=9 OR FIND_IN_SET(v.position,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.previous=CAST(IF(t_tag_lock.deadline<=@tag_lock_now,0,t_tag_lock.count) AS DECIMAL(30,0)),
    t_tag_lock.count=v.keeps*CAST(IF(t_tag_lock.deadline<=@tag_lock_now,0,t_tag_lock.count) AS DECIMAL(30,0))+CAST(v.step AS DECIMAL(30,0))*IF(v.times=1,1,LEAST(ABS(CAST(IF(t_tag_lock.deadline<=@tag_lock_now,0,t_tag_lock.count) AS DECIMAL(30,0))-0),v.times*ABS(CAST(v.step AS DECIMAL(30,0)))) DIV ABS(CAST(v.step AS DECIMAL(30,0)))),
    t_tag_lock.deadline=IF(0=1 OR t_tag_lock.deadline<=@tag_lock_now OR (0>0 AND t_tag_lock.deadline='9999-12-31 00:00:00'),IF(0>0,TIMESTAMPADD(MICROSECOND,0,UTC_TIMESTAMP(6)),'9999-12-31 00:00:00'),t_tag_lock.deadline),
    t_tag_lock.status=1,
    t_tag_lock.holder=x'12ea12eace7d655f471ce55e34f89b1b';

SET @tag_lock_changed=ROW_COUNT();

INSERT INTO t_tag_lock (lock_name,kind,slot) WITH v(name,position,step,length) AS (VALUES ROW(_utf8mb4 x'7072697a653a31',0,1000,0),ROW(_utf8mb4 x'7072697a653a32',1,-9223372036854775808,3600000000))
  SELECT v.name,
    2,
    0
  FROM v
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=9 OR FIND_IN_SET(v.position,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.previous=0,
    t_tag_lock.count=v.step,
    t_tag_lock.deadline=IF(v.length>0,TIMESTAMPADD(MICROSECOND,v.length,UTC_TIMESTAMP(6)),'9999-12-31 00:00:00'),
    t_tag_lock.status=1,
    t_tag_lock.holder=x'12ea12eace7d655f471ce55e34f89b1b';

SET @tag_lock_changed=@tag_lock_changed+ROW_COUNT();

EXECUTE tag_lock_1
  USING @tag_lock_2,
    @tag_lock_3,
    @tag_lock_4,
    @tag_lock_3,
    @tag_lock_5;

SET @tag_lock_changed=@tag_lock_changed+ROW_COUNT();

EXECUTE tag_lock_2
  USING @tag_lock_0,
    @tag_lock_1;

SET completion_type=IF(@tag_lock_decided=:mark AND @tag_lock_changed+ROW_COUNT()=2*(LENGTH(@tag_lock_granted)-LENGTH(REPLACE(@tag_lock_granted,',',''))+(@tag_lock_granted<>''))+2,'NO_CHAIN','undone');

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

SET wait_timeout=28800;
