-- Lakeward: the lake abfss://box@acc.dfs.core.windows.net/lake as Snowflake is to see it
-- 4 published tables, at 1:7:4711 of the source

-- 00 The database, one schema for each schema of the source, and one for what Lakeward says of itself.
CREATE DATABASE IF NOT EXISTS "LAKEWARD";
CREATE SCHEMA IF NOT EXISTS "LAKEWARD"."LAKEWARD";
CREATE SCHEMA IF NOT EXISTS "LAKEWARD"."MARTS";
CREATE SCHEMA IF NOT EXISTS "LAKEWARD"."SHOP";
CREATE SCHEMA IF NOT EXISTS "LAKEWARD"."SHOP__EXPORT";
CREATE SCHEMA IF NOT EXISTS "LAKEWARD"."SHOP__LANDED";

-- 10 Where Snowflake finds the lake. ALLOW_WRITES is TRUE by default; this lake is written by Lakeward alone.
CREATE EXTERNAL VOLUME IF NOT EXISTS "LAKEWARD_VOLUME"
  STORAGE_LOCATIONS = (
    (
      NAME = 'lakeward'
      STORAGE_PROVIDER = 'AZURE'
      STORAGE_BASE_URL = 'azure://acc.blob.core.windows.net/box/lake/'
      AZURE_TENANT_ID = 't'
    )
  )
  ALLOW_WRITES = FALSE;
-- Then open AZURE_CONSENT_URL of this answer, and give that application the role "Storage Blob Data Reader".
DESC EXTERNAL VOLUME "LAKEWARD_VOLUME";

-- 20 How Snowflake reads the tables: from Iceberg's own metadata files, without a catalog server.
CREATE CATALOG INTEGRATION IF NOT EXISTS "LAKEWARD_CATALOG"
  CATALOG_SOURCE = OBJECT_STORE
  TABLE_FORMAT = ICEBERG
  ENABLED = TRUE;

-- 30 One Iceberg table for each table that gold has published. A table that is there already stays as it is.
CREATE ICEBERG TABLE IF NOT EXISTS "LAKEWARD"."MARTS"."REVENUE"
  EXTERNAL_VOLUME = 'LAKEWARD_VOLUME'
  CATALOG = 'LAKEWARD_CATALOG'
  METADATA_FILE_PATH = 'gold/marts/revenue/metadata/v3.metadata.json';
CREATE ICEBERG TABLE IF NOT EXISTS "LAKEWARD"."SHOP"."TRIPS"
  EXTERNAL_VOLUME = 'LAKEWARD_VOLUME'
  CATALOG = 'LAKEWARD_CATALOG'
  METADATA_FILE_PATH = 'gold/shop/trips/metadata/v3.metadata.json';
CREATE ICEBERG TABLE IF NOT EXISTS "LAKEWARD"."SHOP"."USERS"
  EXTERNAL_VOLUME = 'LAKEWARD_VOLUME'
  CATALOG = 'LAKEWARD_CATALOG'
  METADATA_FILE_PATH = 'gold/shop/users/metadata/v3.metadata.json';

-- 31 Move each table to gold's current snapshot. Run this after every run of gold, outside of a transaction, and then
--    part 42, which moves freshness.
ALTER ICEBERG TABLE "LAKEWARD"."MARTS"."REVENUE" REFRESH 'gold/marts/revenue/metadata/v3.metadata.json';
ALTER ICEBERG TABLE "LAKEWARD"."SHOP"."TRIPS" REFRESH 'gold/shop/trips/metadata/v3.metadata.json';
ALTER ICEBERG TABLE "LAKEWARD"."SHOP"."USERS" REFRESH 'gold/shop/users/metadata/v3.metadata.json';

-- 40 The same lake as files: a stage on gold's Parquet exports.
CREATE STORAGE INTEGRATION IF NOT EXISTS "LAKEWARD_STORAGE"
  TYPE = EXTERNAL_STAGE
  STORAGE_PROVIDER = 'AZURE'
  AZURE_TENANT_ID = 't'
  ENABLED = TRUE
  STORAGE_ALLOWED_LOCATIONS = ('azure://acc.blob.core.windows.net/box/lake/export/', 'azure://acc.blob.core.windows.net/box/lake/landing/');
-- Then let the role trust Snowflake for this one, too: it has an identity, and an external id, of its own.
DESC STORAGE INTEGRATION "LAKEWARD_STORAGE";
CREATE FILE FORMAT IF NOT EXISTS "LAKEWARD"."LAKEWARD"."PARQUET_FILES"
  TYPE = PARQUET
  USE_LOGICAL_TYPE = TRUE
  BINARY_AS_TEXT = FALSE;
CREATE FILE FORMAT IF NOT EXISTS "LAKEWARD"."LAKEWARD"."JSON_FILES"
  TYPE = JSON
  COMPRESSION = AUTO
  STRIP_OUTER_ARRAY = FALSE;
CREATE STAGE IF NOT EXISTS "LAKEWARD"."LAKEWARD"."EXPORTS"
  URL = 'azure://acc.blob.core.windows.net/box/lake/export/'
  STORAGE_INTEGRATION = "LAKEWARD_STORAGE"
  FILE_FORMAT = (FORMAT_NAME = "LAKEWARD"."LAKEWARD"."PARQUET_FILES");

-- 41 External tables on the current exports. Each export lies in a folder of its own and never changes, so the table is
--    replaced together with its LOCATION; its grants stay. Prefer the Iceberg tables: an external table skips a file
--    that it cannot read, without an error.
CREATE OR REPLACE EXTERNAL TABLE "LAKEWARD"."SHOP__EXPORT"."TRIPS" (
  "ID" NUMBER(10,0) AS (VALUE['id']::NUMBER(10,0)),
  "FARE" NUMBER(10,2) AS (VALUE['fare']::NUMBER(10,2)),
  "AT" TIMESTAMP_NTZ(6) AS (VALUE['at']::TIMESTAMP_NTZ(6)),
  "TS" TIMESTAMP_LTZ(6) AS (VALUE['ts']::TIMESTAMP_LTZ(6)),
  "J" VARCHAR AS (VALUE['j']::VARCHAR),
  "RAW" BINARY AS (VALUE['raw']::BINARY),
  "PLACE" VARIANT AS (VALUE['place']::VARIANT),
  "V" VARIANT AS (VALUE['v']::VARIANT),
  "X" FLOAT AS (VALUE['x']::FLOAT)
)
  WITH LOCATION = @"LAKEWARD"."LAKEWARD"."EXPORTS"/shop/trips/cut=1-7-4711/
  REFRESH_ON_CREATE = TRUE
  AUTO_REFRESH = FALSE
  FILE_FORMAT = (FORMAT_NAME = "LAKEWARD"."LAKEWARD"."PARQUET_FILES")
  COPY GRANTS;
CREATE OR REPLACE EXTERNAL TABLE "LAKEWARD"."SHOP__EXPORT"."USERS" (
  "ID" NUMBER(19,0) AS (VALUE['id']::NUMBER(19,0)),
  "ON" BOOLEAN AS (VALUE['on']::BOOLEAN),
  "DAY" DATE AS (VALUE['day']::DATE)
)
  WITH LOCATION = @"LAKEWARD"."LAKEWARD"."EXPORTS"/shop/users/cut=1-7-4711/
  REFRESH_ON_CREATE = TRUE
  AUTO_REFRESH = FALSE
  FILE_FORMAT = (FORMAT_NAME = "LAKEWARD"."LAKEWARD"."PARQUET_FILES")
  COPY GRANTS;

-- 42 Freshness is made and moved after everything that it speaks of, so that it never claims what is not there.
CREATE ICEBERG TABLE IF NOT EXISTS "LAKEWARD"."LAKEWARD"."FRESHNESS"
  EXTERNAL_VOLUME = 'LAKEWARD_VOLUME'
  CATALOG = 'LAKEWARD_CATALOG'
  METADATA_FILE_PATH = 'gold/lakeward/freshness/metadata/v3.metadata.json';
ALTER ICEBERG TABLE "LAKEWARD"."LAKEWARD"."FRESHNESS" REFRESH 'gold/lakeward/freshness/metadata/v3.metadata.json';
-- 42 How fresh each table is, and whether what Snowflake shows is behind what gold has published. FRESHNESS is what
--    Snowflake shows (it is refreshed last); gold's own word is the file published.json, read from the stage at each query.
--    AGE_SECONDS counts from the source's last commit that is in the table: a quiet source ages, too. The columns of
--    FRESHNESS are named by their place, whatever case Snowflake keeps Iceberg's names in.
CREATE OR REPLACE VIEW "LAKEWARD"."LAKEWARD"."FRESHNESS_NOW" (
  TABLE_SCHEMA, TABLE_NAME, KIND, CUT, ROW_COUNT, SOURCE_COMMIT_AT, PUBLISHED_AT, AGE_SECONDS, PUBLISHED_SECONDS_AGO,
  GOLD_CUT, GOLD_PUBLISHED_AT, BEHIND
)
AS
WITH f (
  TABLE_SCHEMA, TABLE_NAME, KIND, CUT, EPOCH, FILE, POS, SOURCE_COMMIT_MS, SOURCE_COMMIT_AT, PUBLISHED_AT, ROW_COUNT,
  METADATA_FILE
) AS (SELECT * FROM "LAKEWARD"."LAKEWARD"."FRESHNESS"),
g (TABLE_SCHEMA, TABLE_NAME, KIND, CUT, PUBLISHED_AT, METADATA_FILE) AS (
  SELECT
    $1:table_schema::VARCHAR, $1:table_name::VARCHAR, $1:kind::VARCHAR, $1:cut::VARCHAR,
    TO_TIMESTAMP_LTZ($1:published_ms::NUMBER, 3), $1:metadata_file::VARCHAR
  FROM @"LAKEWARD"."LAKEWARD"."EXPORTS"/lakeward/published.json (FILE_FORMAT => '"LAKEWARD"."LAKEWARD"."JSON_FILES"')
)
SELECT
  COALESCE(f.TABLE_SCHEMA, g.TABLE_SCHEMA), COALESCE(f.TABLE_NAME, g.TABLE_NAME), COALESCE(f.KIND, g.KIND),
  f.CUT, f.ROW_COUNT, f.SOURCE_COMMIT_AT, f.PUBLISHED_AT,
  DATEDIFF('second', f.SOURCE_COMMIT_AT, CURRENT_TIMESTAMP()) AS AGE_SECONDS,
  DATEDIFF('second', f.PUBLISHED_AT, CURRENT_TIMESTAMP()) AS PUBLISHED_SECONDS_AGO,
  g.CUT, g.PUBLISHED_AT,
  f.CUT IS DISTINCT FROM g.CUT OR f.METADATA_FILE IS DISTINCT FROM g.METADATA_FILE AS BEHIND
FROM f
FULL OUTER JOIN g ON f.TABLE_SCHEMA = g.TABLE_SCHEMA AND f.TABLE_NAME = g.TABLE_NAME;

-- 45 The landed events: files of newline JSON, an event a row of the raw table, with the file and the line it came from.
--    Files come in no order, and one may come twice: the queries below put events in the source's order by their place,
--    and count each once. The pipe knows for 14 days what it has loaded, so do not COPY these files by hand as well.
CREATE STAGE IF NOT EXISTS "LAKEWARD"."LAKEWARD"."LANDING"
  URL = 'azure://acc.blob.core.windows.net/box/lake/landing/'
  STORAGE_INTEGRATION = "LAKEWARD_STORAGE"
  FILE_FORMAT = (FORMAT_NAME = "LAKEWARD"."LAKEWARD"."JSON_FILES");
CREATE TABLE IF NOT EXISTS "LAKEWARD"."LAKEWARD"."LANDING_RAW" (EVENT VARIANT, FILE_NAME VARCHAR, FILE_ROW NUMBER(19,0));
CREATE NOTIFICATION INTEGRATION IF NOT EXISTS "FILES"
  ENABLED = TRUE
  TYPE = QUEUE
  NOTIFICATION_PROVIDER = AZURE_STORAGE_QUEUE
  AZURE_STORAGE_QUEUE_PRIMARY_URI = 'https://acc.queue.core.windows.net/landing'
  AZURE_TENANT_ID = 't';
DESC NOTIFICATION INTEGRATION "FILES";
CREATE PIPE IF NOT EXISTS "LAKEWARD"."LAKEWARD"."LANDING_PIPE"
  AUTO_INGEST = TRUE
  INTEGRATION = 'FILES'
  AS COPY INTO "LAKEWARD"."LAKEWARD"."LANDING_RAW" (EVENT, FILE_NAME, FILE_ROW)
  FROM (SELECT $1, METADATA$FILENAME, METADATA$FILE_ROW_NUMBER FROM @"LAKEWARD"."LAKEWARD"."LANDING")
  FILE_FORMAT = (TYPE = JSON);
--    The versions of each row. `place` orders events as the source did: (epoch, file, pos, 0 for a snapshot and 1 for
--    the stream, …). An era ends with a TRUNCATE, or where the table was read again (a new generation): what is open
--    ends with it, but for a row that the new generation has as it was. The last state of a transaction is a version,
--    unless the row was the same before.
CREATE OR REPLACE DYNAMIC TABLE "LAKEWARD"."SHOP__LANDED"."TRIPS__HISTORY"
  TARGET_LAG = '60 seconds'
  WAREHOUSE = "LOADING"
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
  FROM "LAKEWARD"."LAKEWARD"."LANDING_RAW" WHERE EVENT['table']::VARCHAR = 'shop.trips'
),
begins AS (
  SELECT generation, MIN(origin) AS origin, MIN(ts_ms) AS ts_ms FROM events WHERE snapshot GROUP BY generation
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
    IFF(op = 'u' AND TRY_CAST(b['id']::VARCHAR AS NUMBER(10,0)) IS NOT DISTINCT FROM TRY_CAST(a['id']::VARCHAR AS NUMBER(10,0)), 'u', 'c') AS op, ts_ms, tx, snapshot,
    IFF(
      snapshot, origin || '-0-' || LPAD(generation::VARCHAR, 10, '0') || '-1-' || line,
      origin || '-1-' || line || '-00000000-3'
    ) AS place,
    a AS image, a_absent AS absent, b, b_absent
  FROM events WHERE op IN ('c', 'u', 'r')
  UNION ALL
  SELECT 'd', ts_ms, tx, snapshot, origin || '-1-' || line || '-00000000-2', b, b_absent, b, b_absent
  FROM events WHERE op = 'd' OR (op = 'u' AND NOT (TRY_CAST(b['id']::VARCHAR AS NUMBER(10,0)) IS NOT DISTINCT FROM TRY_CAST(a['id']::VARCHAR AS NUMBER(10,0))))
),
seen AS (
  SELECT
    halves.*, eras.*,
    TRY_CAST(image['id']::VARCHAR AS NUMBER(10,0)) AS k0
  FROM halves JOIN eras ON halves.place >= eras.since AND (eras.until IS NULL OR halves.place < eras.until)
),
firsts AS (
  SELECT * FROM seen WHERE begun > 0 AND NOT snapshot
  QUALIFY ROW_NUMBER() OVER (PARTITION BY era, k0 ORDER BY place) = 1
),
states AS (
  SELECT
    op, place, era, image, absent, ts_ms, snapshot AS opening,
    IFF(snapshot, 'generation ' || begun, COALESCE(tx, place)) AS unit,
    IFF(snapshot, IFF(begun = 1, '000000-0000000000-00000000000000-0-0000000000-00000000-2', since_position), place)
      AS position,
    k0
  FROM seen
  UNION ALL
  SELECT
    IFF(op = 'c', 'd', 'u'), since || '-2', era, b, b_absent, LEAST(ts_ms, COALESCE(since_ms, ts_ms)), TRUE,
    'generation ' || begun,
    IFF(begun = 1, '000000-0000000000-00000000000000-0-0000000000-00000000-2', since_position),
    k0
  FROM firsts
),
filled AS (
  SELECT
    op, place, era, ts_ms, opening, unit, position, k0,
    LAST_VALUE(IFF(op = 'u' AND CONTAINS(absent, '"id"'), NULL, OBJECT_CONSTRUCT('v', image['id']))) IGNORE NULLS OVER (PARTITION BY era, k0 ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS v0,
    LEAD(unit) OVER (PARTITION BY k0 ORDER BY place) AS next_unit,
    IFF(
      LAG(unit) OVER (PARTITION BY k0 ORDER BY place) IS DISTINCT FROM unit,
      position, NULL
    ) AS began
  FROM states
),
lasts AS (
  SELECT
    *, IFF(op = 'd', NULL, TO_JSON(OBJECT_CONSTRUCT('v0', STRIP_NULL_VALUE(v0['v'])))) AS row_value,
    MAX(began) OVER (
      PARTITION BY k0 ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS from_position
  FROM filled QUALIFY next_unit IS DISTINCT FROM unit
),
compared AS (
  SELECT
    *, LAG(row_value) OVER (PARTITION BY k0 ORDER BY place) AS row_before,
    LAG(era) OVER (PARTITION BY k0 ORDER BY place) AS last_era
  FROM lasts
),
numbered AS (
  SELECT
    *, SUM(IFF(
      row_before IS NOT DISTINCT FROM row_value AND (last_era = era OR (opening AND last_era = era - 1)), 0, 1
    )) OVER (
      PARTITION BY k0 ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS version
  FROM compared
),
versions AS (
  SELECT *, MAX(era) OVER (PARTITION BY k0, version) AS to_era FROM numbered
  QUALIFY ROW_NUMBER() OVER (PARTITION BY k0, version ORDER BY place) = 1
),
dated AS (
  SELECT
    versions.*, eras.until, eras.until_position, eras.until_ms,
    MAX(ts_ms) OVER (
      PARTITION BY k0 ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS from_ms,
    LEAD(versions.era) OVER (PARTITION BY k0 ORDER BY place) AS next_era
  FROM versions JOIN eras ON eras.era = versions.to_era
),
ended AS (
  SELECT
    *,
    CASE
      WHEN next_era = to_era
        THEN LEAD(from_ms) OVER (PARTITION BY k0 ORDER BY place)
      WHEN until IS NOT NULL THEN GREATEST(from_ms, COALESCE(until_ms, from_ms))
    END AS to_ms,
    CASE
      WHEN next_era = to_era
        THEN LEAD(from_position) OVER (PARTITION BY k0 ORDER BY place)
      ELSE until_position
    END AS to_position
  FROM dated
)
SELECT
  TRY_CAST(v0['v']::VARCHAR AS NUMBER(10,0)) AS "ID",
  TO_TIMESTAMP_LTZ(from_ms, 3) AS "__VALID_FROM",
  TO_TIMESTAMP_LTZ(to_ms, 3) AS "__VALID_TO",
  to_ms IS NULL AS "__IS_CURRENT",
  from_position AS "__VALID_FROM_POSITION",
  to_position AS "__VALID_TO_POSITION"
FROM ended WHERE op <> 'd';
--    What is current of them.
CREATE OR REPLACE DYNAMIC TABLE "LAKEWARD"."SHOP__LANDED"."TRIPS"
  TARGET_LAG = '60 seconds'
  WAREHOUSE = "LOADING"
  COPY GRANTS
  AS
SELECT "ID"
FROM "LAKEWARD"."SHOP__LANDED"."TRIPS__HISTORY" WHERE "__IS_CURRENT";

-- 50 A role that reads these tables and can do nothing else. There are no FUTURE grants: a table that is mirrored
--    tomorrow is shown to nobody until this plan, which names it, has been run again.
CREATE ROLE IF NOT EXISTS "LAKEWARD_READER";
GRANT USAGE ON DATABASE "LAKEWARD" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON WAREHOUSE "LOADING" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD"."LAKEWARD" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD"."MARTS" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD"."SHOP" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD"."SHOP__EXPORT" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD"."SHOP__LANDED" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON ICEBERG TABLE "LAKEWARD"."MARTS"."REVENUE" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON ICEBERG TABLE "LAKEWARD"."SHOP"."TRIPS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON ICEBERG TABLE "LAKEWARD"."SHOP"."USERS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON ICEBERG TABLE "LAKEWARD"."LAKEWARD"."FRESHNESS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON EXTERNAL TABLE "LAKEWARD"."SHOP__EXPORT"."TRIPS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON EXTERNAL TABLE "LAKEWARD"."SHOP__EXPORT"."USERS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON DYNAMIC TABLE "LAKEWARD"."SHOP__LANDED"."TRIPS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON DYNAMIC TABLE "LAKEWARD"."SHOP__LANDED"."TRIPS__HISTORY" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON VIEW "LAKEWARD"."LAKEWARD"."FRESHNESS_NOW" TO ROLE "LAKEWARD_READER";
