SET @tag_lock_changed=NULL,
    wait_timeout=1;

INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (x'd93244e7b08131ef10eda16a07176275',42,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE seq=IF(seq+1=VALUES(seq),VALUES(seq),NULL),
    modify_time=VALUES(modify_time);

SELECT IF(ROW_COUNT()>0,:mark,0),
    UTC_TIMESTAMP(6),
    TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
    COALESCE(MAX(IF(CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN 1 AND 9223372036854775807,0,NULL)),''),
    CONCAT(TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),';',COALESCE(MAX(CONCAT_WS(' ',0,t.status,t.holder=x'12ea12eace7d655f471ce55e34f89b1b',t.fence,TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.deadline),IF(8=8 AND CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN 1 AND 9223372036854775807,CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)),t.previous),IF(8=8 AND CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0)) BETWEEN 1 AND 9223372036854775807,1*CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))+CAST((-1) AS DECIMAL(30,0))*IF(3=1,1,LEAST(ABS(CAST(IF(t.deadline<=UTC_TIMESTAMP(6),0,t.count) AS DECIMAL(30,0))-0),3*ABS(CAST((-1) AS DECIMAL(30,0)))) DIV ABS(CAST((-1) AS DECIMAL(30,0)))),t.count),IF(t.wanted_until>UTC_TIMESTAMP(6),TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),t.wanted_until),0))),''))
  INTO @tag_lock_decided,
    @tag_lock_now,
    @tag_lock_micros,
    @tag_lock_granted,
    @tag_lock_rows
  FROM t_tag_lock t FORCE INDEX(PRIMARY)
  WHERE t.lock_name=_utf8mb4 x'7072697a65'
  AND t.kind=2
  AND t.slot=0
  FOR UPDATE SKIP LOCKED;

INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT _utf8mb4 x'7072697a65',
    2,
    0
  FROM DUAL
  WHERE 1
  AND (LENGTH(@tag_lock_granted)=1 OR FIND_IN_SET(0,@tag_lock_granted))
  ON DUPLICATE KEY UPDATE t_tag_lock.modify_time=UTC_TIMESTAMP(6),
    t_tag_lock.previous=CAST(IF(t_tag_lock.deadline<=@tag_lock_now,0,t_tag_lock.count) AS DECIMAL(30,0)),
    t_tag_lock.count=1*CAST(IF(t_tag_lock.deadline<=@tag_lock_now,0,t_tag_lock.count) AS DECIMAL(30,0))+CAST((-1) AS DECIMAL(30,0))*IF(3=1,1,LEAST(ABS(CAST(IF(t_tag_lock.deadline<=@tag_lock_now,0,t_tag_lock.count) AS DECIMAL(30,0))-0),3*ABS(CAST((-1) AS DECIMAL(30,0)))) DIV ABS(CAST((-1) AS DECIMAL(30,0)))),
    t_tag_lock.deadline=IF(0=1 OR t_tag_lock.deadline<=@tag_lock_now OR (0>0 AND t_tag_lock.deadline='9999-12-31 00:00:00'),IF(0>0,TIMESTAMPADD(MICROSECOND,0,UTC_TIMESTAMP(6)),'9999-12-31 00:00:00'),t_tag_lock.deadline),
    t_tag_lock.status=1,
    t_tag_lock.holder=x'12ea12eace7d655f471ce55e34f89b1b';

SET @tag_lock_changed=ROW_COUNT();

INSERT INTO t_tag_lock_lane (id,seq,modify_time)
  VALUES (x'd93244e7b08131ef10eda16a07176275',42,UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE results=CONCAT(VALUES(seq),';',CONCAT(@tag_lock_granted,';',@tag_lock_rows));

SET completion_type=IF(@tag_lock_decided=:mark AND @tag_lock_changed+ROW_COUNT()=2*(@tag_lock_granted<>'')+2,'NO_CHAIN','undone');

COMMIT;

SELECT CONCAT(@tag_lock_granted,';',@tag_lock_rows);

SET wait_timeout=28800;
