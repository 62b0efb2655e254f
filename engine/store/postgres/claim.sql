-- define: claim_head
-- What every claim begins with. The lock on the worker's row keeps whoever ends
-- its lease waiting until this claim is committed, so that no run is handed to
-- a worker that is gone.
alive AS (
  SELECT 1 FROM {schema}.workers WHERE id = $1 AND expires_at > {now} FOR KEY SHARE
),
asked AS (
  SELECT a.queue, a.lim, a.after
  FROM unnest($2::text[], $3::integer[], $4::text[]) a(queue, lim, after)
  WHERE EXISTS (SELECT FROM alive)
    AND NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.paused_at IS NOT NULL AND (p.kind <> 'queue' OR p.name = a.queue))
)

-- define: claim_tail
-- A row for each run as it was, without what is the same for all, and at last one
-- of the claim itself: what a row costs is a matter of its columns.
taken AS (
  DELETE FROM {schema}.waiting w USING picked p WHERE w.ctid = p.tid
  RETURNING w.*, p.share
), begun AS (
  INSERT INTO {schema}.running (id, job, queue, tenant, key, priority, attempt, max_attempts, claims, orphans,
    run_at, created_at, started_at, claimed_at, worker, module, parent, enqueued_by, traceparent, error, progress, input, gate)
  SELECT id, job, queue, tenant, key, coalesce(asked_priority, priority), attempt + 1, max_attempts, claims + 1, orphans,
    run_at, created_at, coalesce(started_at, {now}), {now}, $1, module, parent, enqueued_by, traceparent, error, progress, input, gate
  FROM taken
)
SELECT NULL::boolean AS alive, NULL::timestamptz AS now, NULL::boolean AS guarded, NULL::timestamptz AS next_due, NULL::bigint AS took,
  w.id, w.job, w.queue, w.tenant, w.key, w.priority, w.attempt + 1, w.max_attempts, w.claims + 1, w.orphans,
  w.run_at, w.created_at, w.started_at, w.module, w.parent, w.enqueued_by, w.traceparent, w.error, w.progress,
  CASE WHEN w.claims = 0 THEN 0 ELSE (SELECT count(*) FROM {schema}.steps s WHERE s.run_id = w.id) END AS steps,
  w.gate, w.asked_priority, w.share, coalesce(w.input, (SELECT i.input FROM {schema}.inputs i WHERE i.run_id = w.id)) AS input
FROM taken w
UNION ALL
SELECT EXISTS (SELECT FROM alive), {now},
  EXISTS (SELECT FROM {schema}.pauses p WHERE p.paused_at IS NOT NULL AND p.kind <> 'queue')
    OR EXISTS (SELECT FROM {schema}.openings o WHERE o.queue = ANY ($2)),
  (SELECT min(d.run_at) FROM asked CROSS JOIN LATERAL (
     SELECT n.run_at FROM {schema}.waiting n
     WHERE n.queue = asked.queue AND n.state IN ('delayed', 'suspended') AND n.run_at > $5
     ORDER BY n.run_at LIMIT 1) d),
  (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL

-- name: claim
-- $1 worker, $2 queues, $3 limits, $4 tenant that each queue served last or
-- NULL, $5 the latest time up to which what waits for a time was promoted.
--
-- tenants walks from tenant to tenant, one seek in waiting_ready each, however
-- many runs they have: on from the one served last, round past the end, and no
-- further than the limit. The limit is dealt out over the tenants met, and each
-- share is read in the order of the index, passing over what others lock.
WITH RECURSIVE {claim_head}, tenants AS (
  SELECT a.queue, a.lim, a.after, h.tenant, h.wrapped, 1 AS n
  FROM asked a CROSS JOIN LATERAL (
    (SELECT w.tenant, false AS wrapped FROM {schema}.waiting w
     WHERE a.after IS NULL AND w.queue = a.queue AND w.state = 'ready' ORDER BY w.tenant LIMIT 1)
    UNION ALL
    (SELECT w.tenant, false FROM {schema}.waiting w
     WHERE w.queue = a.queue AND w.state = 'ready' AND w.tenant > a.after ORDER BY w.tenant LIMIT 1)
    UNION ALL
    (SELECT w.tenant, true FROM {schema}.waiting w
     WHERE w.queue = a.queue AND w.state = 'ready' AND w.tenant <= a.after ORDER BY w.tenant LIMIT 1)
    LIMIT 1) h
  WHERE a.lim > 0
  UNION ALL
  SELECT t.queue, t.lim, t.after, h.tenant, h.wrapped, t.n + 1
  FROM tenants t CROSS JOIN LATERAL (
    (SELECT w.tenant, false AS wrapped FROM {schema}.waiting w
     WHERE NOT t.wrapped AND w.queue = t.queue AND w.state = 'ready' AND w.tenant > t.tenant ORDER BY w.tenant LIMIT 1)
    UNION ALL
    (SELECT w.tenant, true FROM {schema}.waiting w
     WHERE NOT t.wrapped AND w.queue = t.queue AND w.state = 'ready' AND w.tenant <= t.after ORDER BY w.tenant LIMIT 1)
    UNION ALL
    (SELECT w.tenant, true FROM {schema}.waiting w
     WHERE t.wrapped AND w.queue = t.queue AND w.state = 'ready' AND w.tenant > t.tenant AND w.tenant <= t.after ORDER BY w.tenant LIMIT 1)
    LIMIT 1) h
  WHERE t.n < t.lim
), shares AS (
  SELECT t.queue, t.tenant, t.lim / c.met + CASE WHEN t.n <= t.lim % c.met THEN 1 ELSE 0 END AS share
  FROM tenants t JOIN (SELECT queue, count(*)::integer AS met FROM tenants GROUP BY queue) c ON c.queue = t.queue
), picked AS (
  SELECT p.tid, s.share FROM shares s CROSS JOIN LATERAL (
    SELECT w.ctid AS tid FROM {schema}.waiting w
    WHERE w.queue = s.queue AND w.tenant = s.tenant AND w.state = 'ready'
    ORDER BY w.priority, w.run_at, w.id LIMIT s.share FOR UPDATE SKIP LOCKED) p
), {claim_tail}

-- name: claim_lanes
-- As claim, of tenants and priorities that are known, each from where the claims
-- before it left off. $1 worker, $2 queues, $3 limits, $4 not used, $5 as there;
-- $6 queues, $7 tenants, $8 priorities, $9 times and $10 ids where each goes on,
-- $11 the most of each tenant, $12 the tenant's place in the rotation. It may lock
-- more than it takes.
WITH {claim_head}, seen AS (
  SELECT p.tid, l.queue, l.share, l.place, asked.lim,
    row_number() OVER (PARTITION BY l.queue, l.tenant ORDER BY p.priority, p.run_at, p.id) AS n
  FROM unnest($6::text[], $7::text[], $8::smallint[], $9::timestamptz[], $10::uuid[], $11::integer[], $12::integer[])
    l(queue, tenant, priority, at, id, share, place)
  JOIN asked ON asked.queue = l.queue
  CROSS JOIN LATERAL (
    SELECT w.ctid AS tid, w.priority, w.run_at, w.id FROM {schema}.waiting w
    WHERE w.queue = l.queue AND w.tenant = l.tenant AND w.priority = l.priority AND w.state = 'ready' AND (w.run_at, w.id) > (l.at, l.id)
    ORDER BY w.run_at, w.id LIMIT l.share FOR UPDATE SKIP LOCKED) p
), picked AS (
  SELECT tid, share FROM (
    SELECT tid, share, lim, row_number() OVER (PARTITION BY queue ORDER BY n, place) AS k FROM seen WHERE n <= share) r
  WHERE k <= lim
), {claim_tail}

-- name: find_lanes
-- $1 queues, $2 the most of each: tenants and priorities that have ready runs,
-- and the first of each.
SELECT a.queue, l.tenant, l.priority, l.run_at FROM unnest($1::text[]) a(queue) CROSS JOIN LATERAL (
  WITH RECURSIVE lanes AS (
    (SELECT w.tenant, w.priority, w.run_at FROM {schema}.waiting w WHERE w.queue = a.queue AND w.state = 'ready'
     ORDER BY w.tenant, w.priority, w.run_at LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.priority, n.run_at FROM lanes l CROSS JOIN LATERAL (
      SELECT w.tenant, w.priority, w.run_at FROM {schema}.waiting w
      WHERE w.queue = a.queue AND w.state = 'ready' AND (w.tenant, w.priority) > (l.tenant, l.priority)
      ORDER BY w.tenant, w.priority, w.run_at LIMIT 1) n
  )
  SELECT * FROM lanes LIMIT $2) l

-- name: promote
-- $1 queues, $2 the time up to which this was done before, $3 the most. In the
-- order of their times; a paused queue's wait. Answers where they now stand.
WITH due AS (
  SELECT d.tid FROM unnest($1::text[]) a(queue) CROSS JOIN LATERAL (
    SELECT w.ctid AS tid FROM {schema}.waiting w
    WHERE w.queue = a.queue AND w.state IN ('delayed', 'suspended') AND w.run_at <= {now} AND w.run_at > $2
    ORDER BY w.run_at LIMIT $3 FOR UPDATE SKIP LOCKED) d
  WHERE NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.kind = 'queue' AND p.name = a.queue AND p.paused_at IS NOT NULL)
), ready AS (
  UPDATE {schema}.waiting w SET state = 'ready' FROM due WHERE w.ctid = due.tid RETURNING w.queue, w.tenant, w.priority, w.run_at
)
SELECT queue, tenant, priority, min(run_at) FROM ready GROUP BY queue, tenant, priority
