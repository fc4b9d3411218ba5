SET @tag_lock_changed=NULL,
    autocommit=0,
    wait_timeout=1;

SELECT :mark,
    COUNT(*)
  INTO @tag_lock_shut,
    @tag_lock_door
  FROM t_tag_lock t FORCE INDEX(PRIMARY)
  WHERE t.lock_name=_utf8mb4 x'6a6f62'
  AND t.kind=1
  AND t.slot=0
  FOR UPDATE SKIP LOCKED;

SELECT :mark,
    COUNT(*),
    COALESCE(SUM(t.deadline>UTC_TIMESTAMP(6)),0)
  INTO @tag_lock_reached,
    @tag_lock_had,
    @tag_lock_running
  FROM t_tag_lock t FORCE INDEX(PRIMARY)
  WHERE t.lock_name=_utf8mb4 x'6a6f62'
  AND t.kind=6
  AND t.status<>0
  FOR UPDATE SKIP LOCKED;

SELECT :mark,
    COUNT(*)
  INTO @tag_lock_counted,
    @tag_lock_shared
  FROM t_tag_lock t FORCE INDEX(PRIMARY)
  WHERE t.lock_name=_utf8mb4 x'6a6f62'
  AND t.kind=6
  AND t.status<>0;

SELECT :mark,
    COUNT(*)
  INTO @tag_lock_closing,
    @tag_lock_closes
  FROM t_tag_lock t
  WHERE t.lock_name=_utf8mb4 x'6a6f62'
  AND t.kind=1
  AND t.slot=0
  AND t.status=3
  AND t.fence=1790000000000001
  AND TIMESTAMPDIFF(MICROSECOND,t.modify_time,UTC_TIMESTAMP(6))>=86400000000
  AND @tag_lock_door=1
  AND @tag_lock_had=@tag_lock_shared
  AND @tag_lock_running=0;

INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT _utf8mb4 x'6a6f62',
    1,
    0
  FROM DUAL
  WHERE @tag_lock_closes=1
  ON DUPLICATE KEY UPDATE t_tag_lock.status=0,
    t_tag_lock.count=0,
    t_tag_lock.deadline=t_tag_lock.modify_time;

SET @tag_lock_changed=ROW_COUNT();

INSERT INTO t_tag_lock (lock_name,kind,slot)
  SELECT s.lock_name,
    s.kind,
    s.slot
  FROM t_tag_lock s FORCE INDEX(PRIMARY)
  WHERE s.lock_name=_utf8mb4 x'6a6f62'
  AND s.kind=6
  AND s.status<>0
  AND @tag_lock_closes=1
  AND @tag_lock_door=1
  AND @tag_lock_had=@tag_lock_shared
  ON DUPLICATE KEY UPDATE t_tag_lock.status=0,
    t_tag_lock.holder='';

SET completion_type=IF(@tag_lock_shut=:mark AND @tag_lock_reached=:mark AND @tag_lock_counted=:mark AND @tag_lock_closing=:mark AND @tag_lock_changed+ROW_COUNT()=2*@tag_lock_closes+2*@tag_lock_had*(@tag_lock_closes=1 AND @tag_lock_door=1 AND @tag_lock_had=@tag_lock_shared),'NO_CHAIN','undone');

COMMIT;

SELECT @tag_lock_closes;

SET wait_timeout=28800;
