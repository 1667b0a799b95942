-- @when landing
-- 45 The landed events: files of newline JSON, one VARIANT each. Files come in no order; `position` is text of one width,
--    so whoever orders by it has the source's order. The pipe deduplicates by path for 14 days, so never COPY these files
--    by hand as well. Let the bucket's notifications go to the pipe: notification_channel of SHOW PIPES.
-- @when integrated
CREATE STAGE IF NOT EXISTS {{name:landing_stage}}
  URL = {{url:landing_url}}
  STORAGE_INTEGRATION = {{identifier:storage_integration}}
  FILE_FORMAT = (FORMAT_NAME = {{name:json_format}});
-- @end
-- @when s3compat
CREATE STAGE IF NOT EXISTS {{name:landing_stage}}
  URL = {{url:landing_url_s3compat}}
  ENDPOINT = {{literal:endpoint}}
  CREDENTIALS = (AWS_KEY_ID = {{secret:storage_key_id}} AWS_SECRET_KEY = {{secret:storage_secret_key}})
  FILE_FORMAT = (FORMAT_NAME = {{name:json_format}});
-- @end
CREATE TABLE IF NOT EXISTS {{name:landing_raw}} (EVENT VARIANT);
CREATE PIPE IF NOT EXISTS {{name:landing_pipe}}
  AUTO_INGEST = TRUE
  AS COPY INTO {{name:landing_raw}} FROM @{{name:landing_stage}} FILE_FORMAT = (TYPE = JSON);
-- @each landed_tables
CREATE DYNAMIC TABLE IF NOT EXISTS {{name:table}}
  TARGET_LAG = '60 seconds'
  WAREHOUSE = {{identifier:landing_warehouse}}
  AS
WITH events AS (
  SELECT EVENT['op']::VARCHAR AS op, EVENT['position']::VARCHAR AS position, EVENT['before'] AS b, EVENT['after'] AS a
  FROM {{name:landing_raw}} WHERE EVENT['table']::VARCHAR = {{literal:source_table}}
),
halves AS (
  SELECT op, position, 1 AS half, a AS image FROM events WHERE op IN ('c', 'u', 'r')
  UNION ALL
  SELECT 'd' AS op, position, 0 AS half, b AS image FROM events WHERE op IN ('u', 'd')
),
cleared AS (SELECT MAX(position) AS position FROM events WHERE op = 't'),
latest AS (
  SELECT halves.op, halves.image
  FROM halves LEFT JOIN cleared ON halves.position < cleared.position
  WHERE cleared.position IS NULL
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY {{landed_keys:landed_keys}} ORDER BY halves.position DESC, halves.half DESC
  ) = 1
)
SELECT
  {{landed_columns:landed_columns}}
FROM latest WHERE op <> 'd';
CREATE DYNAMIC TABLE IF NOT EXISTS {{name:history}}
  TARGET_LAG = '60 seconds'
  WAREHOUSE = {{identifier:landing_warehouse}}
  AS
WITH events AS (
  SELECT DISTINCT
    EVENT['op']::VARCHAR AS op, EVENT['position']::VARCHAR AS position, EVENT['ts_ms']::NUMBER(19,0) AS ts_ms,
    EVENT['before'] AS b, EVENT['after'] AS a
  FROM {{name:landing_raw}} WHERE EVENT['table']::VARCHAR = {{literal:source_table}}
),
halves AS (
  SELECT op, position, ts_ms, 1 AS half, a AS image FROM events WHERE op IN ('c', 'u', 'r')
  UNION ALL
  SELECT 'd' AS op, position, ts_ms, 0 AS half, b AS image FROM events WHERE op IN ('u', 'd')
),
cleared AS (
  SELECT halves.position, MIN(events.ts_ms) AS cleared_ms
  FROM halves JOIN events ON events.op = 't' AND events.position > halves.position GROUP BY halves.position
),
followed AS (
  SELECT
    op, image, ts_ms, position,
    LEAD(ts_ms) OVER (PARTITION BY {{landed_keys:landed_keys}} ORDER BY position, half) AS next_ms
  FROM halves
),
versions AS (
  SELECT
    op, image, ts_ms,
    LEAST(COALESCE(next_ms, cleared_ms), COALESCE(cleared_ms, next_ms)) AS until_ms
  FROM followed LEFT JOIN cleared ON cleared.position = followed.position
)
SELECT
  {{landed_columns:landed_columns}},
  TO_TIMESTAMP_LTZ(ts_ms, 3) AS "__VALID_FROM",
  TO_TIMESTAMP_LTZ(until_ms, 3) AS "__VALID_TO",
  until_ms IS NULL AS "__IS_CURRENT"
FROM versions WHERE op <> 'd' AND (until_ms IS NULL OR until_ms > ts_ms);
-- @end
-- @end
