-- name: save_logs
-- $1 ids, $2 workers, $3 claims, $4 first lines, $5 last lines, $6 bytes, $7 data.
-- Of runs that are held. Lines of the claims before may be gone: then earlier ones of
-- this claim know how many there were.
INSERT INTO {schema}.logs (run_id, claim, line, last, attempt, earlier, bytes, data)
SELECT r.id, r.claims, u.line, u.last, r.attempt,
  coalesce((SELECT l.earlier FROM {schema}.logs l WHERE l.run_id = r.id AND l.claim = r.claims LIMIT 1),
    (SELECT l.earlier + l.last FROM {schema}.logs l WHERE l.run_id = r.id AND l.claim < r.claims ORDER BY l.claim DESC, l.line DESC LIMIT 1), 0),
  u.bytes, u.data
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::integer[], $7::text[]) u(id, worker, claim, line, last, bytes, data)
JOIN {schema}.running r ON r.id {of_u} AND r.worker = u.worker AND r.claims = u.claim
ON CONFLICT (run_id, claim, line) DO UPDATE SET last = excluded.last, bytes = excluded.bytes, data = excluded.data

-- name: trim_logs
-- $1 ids, $2 most lines, $3 most bytes: rows that are not needed for the last of these
DELETE FROM {schema}.logs l USING (
  SELECT o.ctid AS tid, sum(o.last - o.line + 1) OVER later AS n, sum(o.bytes) OVER later AS b
  FROM {schema}.logs o WHERE o.run_id = ANY ($1::uuid[])
  WINDOW later AS (PARTITION BY o.run_id ORDER BY o.claim DESC, o.line DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) old
WHERE l.ctid = old.tid AND (old.n >= $2::bigint OR old.b >= $3::bigint)

-- name: list_logs
SELECT claim, attempt, earlier, data FROM {schema}.logs WHERE run_id = $1 ORDER BY claim, line
