-- @when landing
-- 45 The landed events: files of newline JSON, an event a row of the raw table, with the file and the line it came from.
--    Files come in no order, and one may come twice: the queries below put events in the source's order by their place,
--    and count each once. The pipe knows for 14 days what it has loaded, so do not COPY these files by hand as well.
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
CREATE TABLE IF NOT EXISTS {{name:landing_raw}} (EVENT VARIANT, FILE_NAME VARCHAR, FILE_ROW NUMBER(19,0));
-- @when s3
--    Let the bucket's notifications go to the queue that notification_channel of SHOW PIPES names.
CREATE PIPE IF NOT EXISTS {{name:landing_pipe}}
  AUTO_INGEST = TRUE
  AS COPY INTO {{name:landing_raw}} (EVENT, FILE_NAME, FILE_ROW)
  FROM (SELECT $1, METADATA$FILENAME, METADATA$FILE_ROW_NUMBER FROM @{{name:landing_stage}})
  FILE_FORMAT = (TYPE = JSON);
-- @end
-- @when landing_subscription
CREATE NOTIFICATION INTEGRATION IF NOT EXISTS {{identifier:landing_integration}}
  ENABLED = TRUE
  TYPE = QUEUE
  NOTIFICATION_PROVIDER = GCP_PUBSUB
  GCP_PUBSUB_SUBSCRIPTION_NAME = {{literal:landing_subscription}};
DESC NOTIFICATION INTEGRATION {{identifier:landing_integration}};
-- @end
-- @when landing_queue
CREATE NOTIFICATION INTEGRATION IF NOT EXISTS {{identifier:landing_integration}}
  ENABLED = TRUE
  TYPE = QUEUE
  NOTIFICATION_PROVIDER = AZURE_STORAGE_QUEUE
  AZURE_STORAGE_QUEUE_PRIMARY_URI = {{literal:landing_queue}}
  AZURE_TENANT_ID = {{literal:azure_tenant_id}};
DESC NOTIFICATION INTEGRATION {{identifier:landing_integration}};
-- @end
-- @when landing_integration
CREATE PIPE IF NOT EXISTS {{name:landing_pipe}}
  AUTO_INGEST = TRUE
  INTEGRATION = {{literal:landing_integration}}
  AS COPY INTO {{name:landing_raw}} (EVENT, FILE_NAME, FILE_ROW)
  FROM (SELECT $1, METADATA$FILENAME, METADATA$FILE_ROW_NUMBER FROM @{{name:landing_stage}})
  FILE_FORMAT = (TYPE = JSON);
-- @end
-- @when s3compat
--    Such a store sends no notifications: ALTER PIPE … REFRESH has the pipe look for new files.
CREATE PIPE IF NOT EXISTS {{name:landing_pipe}}
  AUTO_INGEST = FALSE
  AS COPY INTO {{name:landing_raw}} (EVENT, FILE_NAME, FILE_ROW)
  FROM (SELECT $1, METADATA$FILENAME, METADATA$FILE_ROW_NUMBER FROM @{{name:landing_stage}})
  FILE_FORMAT = (TYPE = JSON);
-- @end
-- @each landed_tables
--    The versions of each row. `place` orders events as the source did: (epoch, file, pos, 0 for a snapshot and 1 for
--    the stream, …). An era ends with a TRUNCATE, or where the table was read again (a new generation): what is open
--    ends with it, but for a row that the new generation has as it was. The last state of a transaction is a version,
--    unless the row was the same before.
CREATE OR REPLACE DYNAMIC TABLE {{name:history}}
  TARGET_LAG = '60 seconds'
  WAREHOUSE = {{identifier:landing_warehouse}}
  COPY GRANTS
  AS
WITH events AS (
  SELECT
    EVENT['op']::VARCHAR AS op,
    EVENT['ts_ms']::NUMBER(19,0) AS ts_ms,
    EVENT['transaction']['id']::VARCHAR AS tx,
    EVENT['source']['snapshot']::BOOLEAN AS snapshot,
    EVENT['source']['generation']::NUMBER(10,0) AS generation,
    LPAD(EVENT['source']['epoch']::VARCHAR, 6, '0') || '-' || LPAD(EVENT['source']['file']::VARCHAR, 10, '0')
      || '-' || LPAD(EVENT['source']['pos']::VARCHAR, 14, '0') AS origin,
    LPAD(EVENT['source']['row']::VARCHAR, 10, '0') AS line,
    TO_JSON(EVENT['source']['absent']) AS a_absent,
    TO_JSON(EVENT['source']['before_absent']) AS b_absent,
    EVENT['after'] AS a,
    EVENT['before'] AS b
  FROM {{name:landing_raw}} WHERE EVENT['table']::VARCHAR = {{literal:source_table}}
),
begins AS (
  SELECT generation, MIN(origin) AS origin, MIN(ts_ms) AS ts_ms FROM events WHERE snapshot GROUP BY generation
-- @each landed_empty
  UNION ALL
  SELECT {{number:generation}}, {{literal:origin}}, MAX(ts_ms) FROM events WHERE origin < {{literal:origin}}
-- @end
),
borders AS (
  SELECT 0 AS generation, '' AS place, '' AS position, 0 AS ts_ms
  UNION
  SELECT
    generation, origin || '-0-' || LPAD(generation::VARCHAR, 10, '0'),
    origin || '-0-0000000000-00000000-0', MIN(ts_ms)
  FROM begins GROUP BY generation, origin
  UNION
  SELECT 0, origin || '-1-' || line || '-00000000-2', origin || '-1-' || line || '-00000000-2', ts_ms
  FROM events WHERE op = 't'
),
eras AS (
  SELECT
    generation AS begun, place AS since, position AS since_position, ts_ms AS since_ms,
    ROW_NUMBER() OVER (ORDER BY place) AS era,
    LEAD(place) OVER (ORDER BY place) AS until,
    LEAD(position) OVER (ORDER BY place) AS until_position,
    LEAD(ts_ms) OVER (ORDER BY place) AS until_ms
  FROM borders
),
halves AS (
  SELECT
    IFF(op = 'u' AND {{landed_same_key:landed_keys}}, 'u', 'c') AS op, ts_ms, tx, snapshot,
    IFF(
      snapshot, origin || '-0-' || LPAD(generation::VARCHAR, 10, '0') || '-1-' || line,
      origin || '-1-' || line || '-00000000-3'
    ) AS place,
    a AS image, a_absent AS absent, b, b_absent
  FROM events WHERE op IN ('c', 'u', 'r')
  UNION ALL
  SELECT 'd', ts_ms, tx, snapshot, origin || '-1-' || line || '-00000000-2', b, b_absent, b, b_absent
  FROM events WHERE op = 'd' OR (op = 'u' AND NOT ({{landed_same_key:landed_keys}}))
),
seen AS (
  SELECT
    halves.*, eras.*,
    {{landed_key:landed_keys}}
  FROM halves JOIN eras ON halves.place >= eras.since AND (eras.until IS NULL OR halves.place < eras.until)
),
firsts AS (
  SELECT * FROM seen WHERE begun > 0 AND NOT snapshot
  QUALIFY ROW_NUMBER() OVER (PARTITION BY era, {{landed_key_names:landed_keys}} ORDER BY place) = 1
),
states AS (
  SELECT
    op, place, era, image, absent, ts_ms, snapshot AS opening,
    IFF(snapshot, 'generation ' || begun, COALESCE(tx, place)) AS unit,
    IFF(snapshot, IFF(begun = 1, '000000-0000000000-00000000000000-0-0000000000-00000000-2', since_position), place)
      AS position,
    {{landed_key_names:landed_keys}}
  FROM seen
  UNION ALL
  SELECT
    IFF(op = 'c', 'd', 'u'), since || '-2', era, b, b_absent, LEAST(ts_ms, COALESCE(since_ms, ts_ms)), TRUE,
    'generation ' || begun,
    IFF(begun = 1, '000000-0000000000-00000000000000-0-0000000000-00000000-2', since_position),
    {{landed_key_names:landed_keys}}
  FROM firsts
),
filled AS (
  SELECT
    op, place, era, ts_ms, opening, unit, position, {{landed_key_names:landed_keys}},
    {{landed_sent:landed_sent}},
    LEAD(unit) OVER (PARTITION BY {{landed_key_names:landed_keys}} ORDER BY place) AS next_unit,
    IFF(
      LAG(unit) OVER (PARTITION BY {{landed_key_names:landed_keys}} ORDER BY place) IS DISTINCT FROM unit,
      position, NULL
    ) AS began
  FROM states
),
lasts AS (
  SELECT
    *, IFF(op = 'd', NULL, {{landed_row:landed_columns}}) AS row_value,
    MAX(began) OVER (
      PARTITION BY {{landed_key_names:landed_keys}} ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS from_position
  FROM filled QUALIFY next_unit IS DISTINCT FROM unit
),
compared AS (
  SELECT
    *, LAG(row_value) OVER (PARTITION BY {{landed_key_names:landed_keys}} ORDER BY place) AS row_before,
    LAG(era) OVER (PARTITION BY {{landed_key_names:landed_keys}} ORDER BY place) AS last_era
  FROM lasts
),
numbered AS (
  SELECT
    *, SUM(IFF(
      row_before IS NOT DISTINCT FROM row_value AND (last_era = era OR (opening AND last_era = era - 1)), 0, 1
    )) OVER (
      PARTITION BY {{landed_key_names:landed_keys}} ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS version
  FROM compared
),
versions AS (
  SELECT *, MAX(era) OVER (PARTITION BY {{landed_key_names:landed_keys}}, version) AS to_era FROM numbered
  QUALIFY ROW_NUMBER() OVER (PARTITION BY {{landed_key_names:landed_keys}}, version ORDER BY place) = 1
),
dated AS (
  SELECT
    versions.*, eras.until, eras.until_position, eras.until_ms,
    MAX(ts_ms) OVER (
      PARTITION BY {{landed_key_names:landed_keys}} ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS from_ms,
    LEAD(versions.era) OVER (PARTITION BY {{landed_key_names:landed_keys}} ORDER BY place) AS next_era
  FROM versions JOIN eras ON eras.era = versions.to_era
),
ended AS (
  SELECT
    *,
    CASE
      WHEN next_era = to_era
        THEN LEAD(from_ms) OVER (PARTITION BY {{landed_key_names:landed_keys}} ORDER BY place)
      WHEN until IS NOT NULL THEN GREATEST(from_ms, COALESCE(until_ms, from_ms))
    END AS to_ms,
    CASE
      WHEN next_era = to_era
        THEN LEAD(from_position) OVER (PARTITION BY {{landed_key_names:landed_keys}} ORDER BY place)
      ELSE until_position
    END AS to_position
  FROM dated
)
SELECT
  {{landed_columns:landed_columns}},
  TO_TIMESTAMP_LTZ(from_ms, 3) AS "__VALID_FROM",
  TO_TIMESTAMP_LTZ(to_ms, 3) AS "__VALID_TO",
  to_ms IS NULL AS "__IS_CURRENT",
  from_position AS "__VALID_FROM_POSITION",
  to_position AS "__VALID_TO_POSITION"
FROM ended WHERE op <> 'd';
--    What is current of them.
CREATE OR REPLACE DYNAMIC TABLE {{name:table}}
  TARGET_LAG = '60 seconds'
  WAREHOUSE = {{identifier:landing_warehouse}}
  COPY GRANTS
  AS
SELECT {{landed_names:landed_columns}}
FROM {{name:history}} WHERE "__IS_CURRENT";
-- @end
-- @end
