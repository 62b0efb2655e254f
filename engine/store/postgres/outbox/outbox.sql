-- name: plan
-- For the statements of this transaction alone: the table may have been small,
-- or never analysed, when the server last looked, and they must not scan it.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
  set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true)

-- name: claim
-- $1 relay, $2 limit, $3 lease in ms, $4 only rows after this, $5 bytes. Picking
-- and stamping are one statement: a row that was only picked would be free again
-- when the statement ends. What an UPDATE returns has no order of its own.
WITH picked AS MATERIALIZED (
  SELECT o.id, o.seq, octet_length(o.input) AS size FROM {schema}.outbox o
  WHERE o.state = 'staged' AND o.seq > $4::bigint
    AND (o.leased_until IS NULL OR o.leased_until <= {now} OR o.claimed_by = $1::text)
  ORDER BY o.seq LIMIT $2::integer
  FOR UPDATE SKIP LOCKED
), sized AS MATERIALIZED (
  SELECT p.id, sum(p.size) OVER (ORDER BY p.seq) - p.size AS before FROM picked p
), claimed AS (
  UPDATE {schema}.outbox o
  SET claimed_by = $1::text, claims = o.claims + 1, leased_until = {now} + $3::bigint * interval '1 millisecond'
  FROM sized z WHERE o.id = z.id AND z.before < $5::bigint
  RETURNING o.*
)
SELECT c.seq, {row}, c.input FROM claimed c ORDER BY c.seq

-- define: row
c.id::text, c.state, coalesce(c.job, ''), coalesce(c.topic, ''), coalesce(c.keep_ms, 0), coalesce(c.key, ''), coalesce(c.tenant, ''), c.run_at, coalesce(c.delay_ms, 0),
c.priority, coalesce(c.max_attempts, 0), c.on_conflict, coalesce(c.enqueued_by, ''), coalesce(c.traceparent, ''),
c.staged_at, greatest(0, extract(epoch FROM {now} - c.staged_at) * 1000)::bigint, coalesce(c.claimed_by, ''), c.claims,
c.settled_at, coalesce(c.run_id::text, ''), coalesce(c.code, ''), coalesce(c.reason, '')

-- name: settle
-- $1 ids, $2 relays, $3 ordinals, $4 runs, $5 codes, $6 reasons; a NULL code is
-- published. Answers 1-based which landed, now or before.
WITH u AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::uuid[], $5::text[], $6::text[]) WITH ORDINALITY
    u(id, relay, claim, run_id, code, reason, ord)
), done AS (
  UPDATE {schema}.outbox o
  SET state = CASE WHEN u.code IS NULL THEN 'published' ELSE 'rejected' END, settled_at = {now},
    run_id = u.run_id, code = u.code, reason = u.reason, leased_until = NULL
  FROM u WHERE o.id = u.id AND o.state = 'staged' AND o.claimed_by = u.relay AND o.claims = u.claim
  RETURNING o.id
)
SELECT u.ord FROM u
WHERE EXISTS (SELECT FROM done d WHERE d.id = u.id)
  OR EXISTS (SELECT FROM {schema}.outbox o WHERE o.id = u.id AND o.state <> 'staged' AND o.claimed_by = u.relay AND o.claims = u.claim OFFSET 0)

-- name: release
-- $1 ids, $2 relays, $3 ordinals
UPDATE {schema}.outbox o SET claimed_by = NULL, leased_until = NULL
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) u(id, relay, claim)
WHERE o.id = u.id AND o.state = 'staged' AND o.claimed_by = u.relay AND o.claims = u.claim

-- name: purge
-- $1 ms to keep, $2 limit
DELETE FROM {schema}.outbox o WHERE o.id = ANY (ARRAY(
  SELECT p.id FROM {schema}.outbox p
  WHERE p.state = 'published' AND p.settled_at <= {now} - $1::bigint * interval '1 millisecond'
  ORDER BY p.settled_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
)) RETURNING 1

-- name: stats
-- $1 where counts stop
SELECT
  (SELECT count(*) FROM (SELECT FROM {schema}.outbox o WHERE o.state = 'staged' LIMIT $1::integer) n),
  (SELECT count(*) FROM (SELECT FROM {schema}.outbox o WHERE o.state = 'rejected' LIMIT $1::integer) n),
  coalesce((SELECT greatest(0, extract(epoch FROM {now} - o.staged_at) * 1000)::bigint
    FROM {schema}.outbox o WHERE o.state = 'staged' ORDER BY o.seq LIMIT 1), 0)

-- name: list
-- $1 job, $2 code, $3 before this id, $4 limit. {state} is TRUE or a predicate
-- of one state, as the index of that state has it.
SELECT c.seq, {row} FROM {schema}.outbox c
WHERE {state} AND ($1::text IS NULL OR c.job = $1::text) AND ($2::text IS NULL OR c.code = $2::text)
  AND ($3::uuid IS NULL OR c.id < $3::uuid)
ORDER BY c.id DESC LIMIT $4::integer

-- name: states
-- $1 ids
SELECT o.id::text, o.state FROM {schema}.outbox o WHERE o.id = ANY ($1::uuid[]) FOR UPDATE

-- name: retry
-- $1 ids of rejected rows, which are locked, $2 by whom, $3 ms that an entry of the
-- audit is kept
WITH old AS MATERIALIZED (
  SELECT o.id, coalesce(o.job, 'event ' || o.topic) || coalesce(', ' || o.code, '') AS detail
  FROM {schema}.outbox o WHERE o.id = ANY ($1::uuid[]) AND o.state = 'rejected'
), again AS (
  UPDATE {schema}.outbox o
  SET state = 'staged', settled_at = NULL, run_id = NULL, code = NULL, reason = NULL, claimed_by = NULL, leased_until = NULL
  FROM old WHERE o.id = old.id RETURNING o.id
), noted AS (
  INSERT INTO {schema}.outbox_audit (at, actor, verb, kind, subject, detail)
  SELECT {now}, $2::text, 'retry', 'row', old.id::text, old.detail FROM old ORDER BY old.id
), forgotten AS (
  DELETE FROM {schema}.outbox_audit a WHERE a.id = ANY (ARRAY(SELECT p.id FROM {schema}.outbox_audit p ORDER BY p.id LIMIT 10000))
    AND a.at < {now} - $3::bigint * interval '1 millisecond'
)
SELECT id::text FROM again ORDER BY id

-- define: audit_page
-- $1 the id before which, $2 limit, $3 kind, $4 subject, $5 actor, $6 verb, $7 and $8
-- the times between: '' filters nothing
a.id < $1::bigint AND ($3::text = '' OR a.kind = $3::text) AND ($4::text = '' OR a.subject = $4::text) AND ($5::text = '' OR a.actor = $5::text)
  AND ($6::text = '' OR a.verb = $6::text) AND a.at >= $7::timestamptz AND a.at < $8::timestamptz
ORDER BY a.id DESC LIMIT $2::integer

-- define: audit_entry
a.id, a.at, a.actor, a.verb, a.kind, a.subject, a.detail

-- name: audit
SELECT {audit_entry} FROM {schema}.outbox_audit a WHERE {audit_page}

-- name: audit_subject
SELECT {audit_entry} FROM {schema}.outbox_audit a WHERE a.subject = $4::text AND {audit_page}

-- name: audit_actor
SELECT {audit_entry} FROM {schema}.outbox_audit a WHERE left(a.actor, 255) = left($5::text, 255) AND {audit_page}

-- name: find_rejected
-- $1 job, $2 code, $3 limit
SELECT o.id::text FROM {schema}.outbox o
WHERE o.state = 'rejected' AND ($1::text IS NULL OR o.job = $1::text) AND ($2::text IS NULL OR o.code = $2::text)
ORDER BY o.id LIMIT $3::integer FOR UPDATE SKIP LOCKED

-- name: notify
-- $1 channel, $2 payload
SELECT pg_notify($1::text, $2::text)
