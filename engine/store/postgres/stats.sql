-- Counts for gauges. Every process asks for them again and again, whatever the
-- backlog: so each statement reads a bounded number of rows of each queue.

-- name: stats_ready
-- $1 most rows counted, $2 most lanes looked at, of each queue. The oldest is
-- that of the rows counted and, if those were not all, of the first rows of lanes:
-- a lane is a tenant and a priority, and the index has its oldest first.
WITH RECURSIVE queues(queue) AS (
  (SELECT queue FROM {schema}.waiting WHERE state = 'ready' ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT (SELECT w.queue FROM {schema}.waiting w WHERE w.state = 'ready' AND w.queue > q.queue ORDER BY w.queue LIMIT 1)
  FROM queues q WHERE q.queue IS NOT NULL
)
SELECT q.queue, c.n, least(c.oldest, l.oldest)
FROM queues q
CROSS JOIN LATERAL (
  SELECT count(*) AS n, min(w.run_at) AS oldest
  FROM (SELECT run_at FROM {schema}.waiting WHERE state = 'ready' AND queue = q.queue LIMIT $1::bigint) w
) c
CROSS JOIN LATERAL (
  WITH RECURSIVE lanes(tenant, priority, run_at) AS (
    (SELECT tenant, priority, run_at FROM {schema}.waiting WHERE state = 'ready' AND queue = q.queue AND c.n = $1
     ORDER BY tenant, priority, run_at LIMIT 1)
    UNION ALL
    SELECT n.* FROM lanes l CROSS JOIN LATERAL (
      SELECT tenant, priority, run_at FROM {schema}.waiting
      WHERE state = 'ready' AND queue = q.queue AND (tenant, priority) > (l.tenant, l.priority)
      ORDER BY tenant, priority, run_at LIMIT 1
    ) n
  )
  SELECT min(run_at) AS oldest FROM (SELECT run_at FROM lanes LIMIT $2::bigint) f
) l
WHERE q.queue IS NOT NULL

-- name: stats_blocked
-- $1 the most: what waits behind gates is ready
SELECT queue, count(*), min(run_at) FROM (
  SELECT queue, run_at FROM {schema}.waiting WHERE state = 'blocked' LIMIT $1::bigint) b
GROUP BY queue

-- name: stats_timed
-- $1 most rows counted of each queue, those due first: what is due though it
-- still says that it waits; what is not, by state.
WITH RECURSIVE queues(queue) AS (
  (SELECT queue FROM {schema}.waiting WHERE state IN ('delayed', 'suspended') ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT (SELECT w.queue FROM {schema}.waiting w WHERE w.state IN ('delayed', 'suspended') AND w.queue > q.queue ORDER BY w.queue LIMIT 1)
  FROM queues q WHERE q.queue IS NOT NULL
)
SELECT q.queue, c.*
FROM queues q
CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE w.run_at <= {now}), min(w.run_at) FILTER (WHERE w.run_at <= {now}),
    count(*) FILTER (WHERE w.state = 'delayed' AND w.run_at > {now}), count(*) FILTER (WHERE w.state = 'suspended' AND w.run_at > {now})
  FROM (
    SELECT run_at, state FROM {schema}.waiting WHERE state IN ('delayed', 'suspended') AND queue = q.queue ORDER BY run_at LIMIT $1::bigint
  ) w
) c
WHERE q.queue IS NOT NULL

-- name: stats_running
SELECT queue, count(*) FROM {schema}.running GROUP BY queue

-- name: stats_finished
SELECT queue, coalesce(sum(n) FILTER (WHERE state = 'done'), 0)::bigint, coalesce(sum(n) FILTER (WHERE state = 'failed'), 0)::bigint,
  coalesce(sum(n) FILTER (WHERE state = 'dead'), 0)::bigint, coalesce(sum(n) FILTER (WHERE state = 'cancelled'), 0)::bigint
FROM {schema}.tally GROUP BY queue

-- name: stats_events
-- $1 most counted
SELECT (SELECT count(*) FROM (SELECT FROM {schema}.events LIMIT $1::bigint) e), (SELECT published_at FROM {schema}.events ORDER BY seq LIMIT 1)

-- name: stats_workers
SELECT count(*), {now} FROM {schema}.workers WHERE expires_at > {now}
