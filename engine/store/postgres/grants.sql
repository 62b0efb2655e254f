-- define: grants_worker
-- What a process that claims and runs needs; {role} is its role.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON {schema}.schema_version TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.waiting, {schema}.running, {schema}.finished, {schema}.live_keys,
  {schema}.inputs, {schema}.steps, {schema}.attempts, {schema}.workers, {schema}.tally, {schema}.schedules,
  {schema}.events, {schema}.invocations, {schema}.invokers, {schema}.logs, {schema}.openings, {schema}.rates, {schema}.pauses TO {role};
GRANT SELECT, INSERT, DELETE ON {schema}.audit TO {role};
GRANT USAGE ON SEQUENCE {schema}.step_ordinal TO {role};
GRANT EXECUTE ON FUNCTION {schema}.extend(integer), {schema}.drop_expired(timestamptz),
  {schema}.publish(text, text, text, text, interval, text, uuid), {schema}.publish(text, json, text, text, interval, text, uuid),
  {schema}.publish(text, jsonb, text, text, interval, text, uuid), {schema}.publish_now(text, text, text, text, interval, text, uuid) TO {role};

-- define: grants_enqueuer
-- What a process that only enqueues and publishes needs. It reads no inputs,
-- outputs, steps or events.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON {schema}.schema_version TO {role};
GRANT INSERT (id, job, queue, tenant, key, state, priority, max_attempts, run_at, created_at, parent, enqueued_by, traceparent, input, gate)
  ON {schema}.waiting TO {role};
GRANT INSERT ON {schema}.live_keys, {schema}.inputs TO {role};
GRANT SELECT (id, job, tenant, key, state, run_at, claims) ON {schema}.waiting TO {role};
GRANT SELECT (id, job, tenant, key, claims) ON {schema}.running TO {role};
GRANT SELECT (id, state, claims) ON {schema}.finished TO {role};
GRANT SELECT ON {schema}.live_keys TO {role};
GRANT EXECUTE ON FUNCTION {schema}.publish(text, text, text, text, interval, text, uuid), {schema}.publish(text, json, text, text, interval, text, uuid),
  {schema}.publish(text, jsonb, text, text, interval, text, uuid), {schema}.publish_now(text, text, text, text, interval, text, uuid) TO {role};
