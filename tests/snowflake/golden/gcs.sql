-- Lakeward: the lake gs://bucket/lake as Snowflake is to see it
-- 4 published tables, at 1:7:4711 of the source

-- 00 The database, one schema for each schema of the source, and one for what Lakeward says of itself.
CREATE DATABASE IF NOT EXISTS "LAKEWARD";
CREATE SCHEMA IF NOT EXISTS "LAKEWARD"."LAKEWARD";
CREATE SCHEMA IF NOT EXISTS "LAKEWARD"."MARTS";
CREATE SCHEMA IF NOT EXISTS "LAKEWARD"."SHOP";
CREATE SCHEMA IF NOT EXISTS "LAKEWARD"."SHOP__EXPORT";

-- 10 Where Snowflake finds the lake. ALLOW_WRITES is TRUE by default; this lake is written by Lakeward alone.
CREATE EXTERNAL VOLUME IF NOT EXISTS "LAKEWARD_VOLUME"
  STORAGE_LOCATIONS = (
    (
      NAME = 'lakeward'
      STORAGE_PROVIDER = 'GCS'
      STORAGE_BASE_URL = 'gcs://bucket/lake/'
    )
  )
  ALLOW_WRITES = FALSE;
-- Then let the service account STORAGE_GCP_SERVICE_ACCOUNT of this answer read the bucket.
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
  STORAGE_PROVIDER = 'GCS'
  ENABLED = TRUE
  STORAGE_ALLOWED_LOCATIONS = ('gcs://bucket/lake/export/');
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
  URL = 'gcs://bucket/lake/export/'
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

-- 50 A role that reads these tables and can do nothing else. There are no FUTURE grants: a table that is mirrored
--    tomorrow is shown to nobody until this plan, which names it, has been run again.
CREATE ROLE IF NOT EXISTS "LAKEWARD_READER";
GRANT USAGE ON DATABASE "LAKEWARD" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON WAREHOUSE "ANALYSTS" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD"."LAKEWARD" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD"."MARTS" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD"."SHOP" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD"."SHOP__EXPORT" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON ICEBERG TABLE "LAKEWARD"."MARTS"."REVENUE" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON ICEBERG TABLE "LAKEWARD"."SHOP"."TRIPS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON ICEBERG TABLE "LAKEWARD"."SHOP"."USERS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON ICEBERG TABLE "LAKEWARD"."LAKEWARD"."FRESHNESS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON EXTERNAL TABLE "LAKEWARD"."SHOP__EXPORT"."TRIPS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON EXTERNAL TABLE "LAKEWARD"."SHOP__EXPORT"."USERS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON VIEW "LAKEWARD"."LAKEWARD"."FRESHNESS_NOW" TO ROLE "LAKEWARD_READER";
