-- These are for functions that set search_path and standard_conforming_strings: they
-- cannot be called otherwise, and to set them each time would cost more than the rest.

-- {of}_refuse ends a call with a code that every door of the runner has for it:
-- the message begins with it, the hint says what to do, and the SQLSTATE is that of
-- a value that cannot be.
CREATE FUNCTION {schema}.{of}_refuse(why text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF why[4] IS NULL THEN
    RAISE EXCEPTION '%: %', why[1], why[2] USING ERRCODE = 'invalid_parameter_value', HINT = why[3];
  END IF;
  RAISE EXCEPTION '%: %', why[1], why[2] USING ERRCODE = 'invalid_parameter_value', HINT = why[3], DETAIL = why[4];
END $$;

-- {of}_json_problem is what is wrong with a text that the type json takes: readers
-- would not agree on it, or not get to its end. Keys are compared as they are read.
CREATE FUNCTION {schema}.{of}_json_problem(payload text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN (WITH tokens AS (
    SELECT m[1] AS token, n FROM regexp_matches(payload, '("(?:[^"\\]|\\.)*"\s*:|"(?:[^"\\]|\\.)*"|[][{}])', 'g') WITH ORDINALITY t(m, n)
  ), nested AS (
    SELECT token, n, sum(CASE WHEN token IN ('{', '[') THEN 1 WHEN token IN ('}', ']') THEN -1 ELSE 0 END) OVER (ORDER BY n) AS depth FROM tokens
  ), keys AS (
    SELECT rtrim(token, E': \t\r\n') AS key, max(CASE WHEN token = '{' THEN n END) OVER (PARTITION BY depth ORDER BY n) AS object, token LIKE '"%:' AS is_key
    FROM nested
  ), read AS (
    SELECT object, CASE WHEN strpos(key, '\') = 0 THEN key ELSE (
      SELECT string_agg(CASE
        WHEN p[1] ~ '^\\u[dD][89abAB]..\\u' THEN chr(65536 + (('x0000' || substr(p[1], 3, 4))::bit(32)::integer - 55296) * 1024 + ('x0000' || substr(p[1], 9, 4))::bit(32)::integer - 56320)
        WHEN p[1] ~ '^\\u[dD][89a-fA-F]' THEN chr(65533)
        WHEN p[1] ~ '^\\u0000' THEN p[1]
        WHEN p[1] ~ '^\\u' THEN chr(('x0000' || substr(p[1], 3, 4))::bit(32)::integer)
        WHEN p[1] ~ '^\\[bfnrt]' THEN translate(substr(p[1], 2), 'bfnrt', E'\b\f\n\r\t')
        WHEN p[1] ~ '^\\' THEN substr(p[1], 2)
        ELSE p[1] END, '' ORDER BY n)
      FROM regexp_matches(key, '(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]+)', 'g') WITH ORDINALITY q(p, n)) END AS key
    FROM keys WHERE is_key
  )
  SELECT CASE
    WHEN (SELECT max(depth) FROM nested) > 1000 THEN 'nested deeper than 1000'
    WHEN EXISTS (SELECT FROM read GROUP BY object, key HAVING count(*) > 1) THEN 'a key is there twice'
  END);
END $$;

-- {of}_json_refusal is why a text is no JSON that is taken, with the code, or NULL.
-- Only a thorough look finds a key that is there twice. What is caught here is an
-- error of the server's own parser, which gives up with words about its stack.
CREATE FUNCTION {schema}.{of}_json_refusal(code text, what text, payload text, thorough boolean) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
#variable_conflict use_variable
DECLARE
  fix   constant text := 'send one JSON value in UTF-8, with each key once and control characters escaped';
  size  constant integer := octet_length(payload);
  wrong text;
  says  text;
BEGIN
  IF size > 1048576 THEN
    RETURN ARRAY[code, format('%s has %s bytes, and at most 1048576 are taken', what, size), 'send less, or where it can be found'];
  END IF;
  IF thorough AND size <= 1000 AND payload ~ '^\s*[{][^{\\]*$' THEN
    -- One object, whose keys are as they stand: it is most of what is sent.
    IF EXISTS (SELECT FROM json_object_keys(payload::json) k GROUP BY k HAVING count(*) > 1) THEN
      wrong := 'a key is there twice';
    END IF;
  ELSIF thorough AND payload ~ '[[{]' OR size > 1000 AND size - octet_length(translate(payload, '[{', '')) > 1000 THEN
    wrong := {schema}.{of}_json_problem(payload);
  END IF;
  IF wrong IS NULL THEN
    PERFORM payload::json;
    RETURN NULL;
  END IF;
  RETURN ARRAY[code, format('%s is refused: %s', what, wrong), fix];
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
  GET STACKED DIAGNOSTICS says = PG_EXCEPTION_DETAIL;
  RETURN ARRAY[code, format('%s is refused: it is no JSON', what), fix, left(says, 500)];
END $$;

-- {of}_event_refusal is why an event is none, with the code, or NULL. Its bounds are
-- those of every other door.
CREATE FUNCTION {schema}.{of}_event_refusal(topic text, payload text, key text, tenant text, keep interval, published_by text)
RETURNS text[] LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  name constant text := '[\u0001-\u001f\u007f-\u009f]';
  wrong text[];
BEGIN
  IF topic IS NULL OR octet_length(topic) NOT BETWEEN 1 AND 255 OR topic ~ name THEN
    RETURN ARRAY['X_INVALID', 'the topic is none', 'say 1 to 255 bytes of UTF-8, without control characters'];
  ELSIF octet_length(key) > 255 OR key ~ name THEN
    RETURN ARRAY['X_INVALID', 'the key is none', 'say at most 255 bytes of UTF-8, without control characters'];
  END IF;
  wrong := {schema}.{of}_json_refusal('X_INVALID', 'the payload', payload, true);
  IF wrong IS NOT NULL THEN
    RETURN wrong;
  END IF;
  -- What is far out is not computed with, and months have the days that they have.
  IF keep NOT BETWEEN interval '1 millisecond' AND interval '3660 days'
    OR extract(epoch FROM (now() + keep) - now()) NOT BETWEEN 0.001 AND 315360000 THEN
    RETURN ARRAY['X_INVALID', 'an event cannot be kept for so long', 'say 1ms to ten years'];
  ELSIF octet_length(tenant) > 255 THEN
    RETURN ARRAY['X_INVALID', format('the tenant has %s bytes', octet_length(tenant)), 'say it in at most 255'];
  ELSIF octet_length(published_by) > 255 THEN
    RETURN ARRAY['X_INVALID', format('who publishes has %s bytes', octet_length(published_by)), 'say it in at most 255'];
  END IF;
  RETURN NULL;
END $$;

REVOKE ALL ON FUNCTION {schema}.{of}_refuse(text[]), {schema}.{of}_json_problem(text), {schema}.{of}_json_refusal(text, text, text, boolean),
  {schema}.{of}_event_refusal(text, text, text, text, interval, text) FROM PUBLIC;
