-- Lakeward: the lake s3a://bucket/lake as Snowflake is to see it
-- 4 published tables, at 1:7:4711 of the source

-- 00 The database, one schema for each schema of the source, and one for what Lakeward says of itself.
CREATE DATABASE IF NOT EXISTS "LAKEWARD";
CREATE SCHEMA IF NOT EXISTS "LAKEWARD"."LAKEWARD";
CREATE SCHEMA IF NOT EXISTS "LAKEWARD"."SHOP__EXPORT";

-- 10 Where Snowflake finds the lake. ALLOW_WRITES is TRUE by default; this lake is written by Lakeward alone.
CREATE EXTERNAL VOLUME IF NOT EXISTS "LAKEWARD_VOLUME"
  STORAGE_LOCATIONS = (
    (
      NAME = 'lakeward'
      STORAGE_PROVIDER = 'S3'
      STORAGE_BASE_URL = 's3://bucket/lake/'
      STORAGE_AWS_ROLE_ARN = 'arn:aws:iam::1:role/r'
    )
  )
  ALLOW_WRITES = FALSE;
-- Then let the role trust Snowflake: STORAGE_AWS_IAM_USER_ARN and STORAGE_AWS_EXTERNAL_ID of this answer.
DESC EXTERNAL VOLUME "LAKEWARD_VOLUME";

-- 20 How Snowflake finds the tables: in the Iceberg REST catalog that gold commits to.
CREATE CATALOG INTEGRATION IF NOT EXISTS "LAKEWARD_CATALOG"
  CATALOG_SOURCE = ICEBERG_REST
  TABLE_FORMAT = ICEBERG
  REST_CONFIG = (
    CATALOG_URI = 'https://glue.eu-west-1.amazonaws.com/iceberg'
    CATALOG_NAME = '1'
    CATALOG_API_TYPE = AWS_GLUE
    ACCESS_DELEGATION_MODE = EXTERNAL_VOLUME_CREDENTIALS
  )
  REST_AUTHENTICATION = (
    TYPE = SIGV4
    SIGV4_IAM_ROLE = 'arn:aws:iam::1:role/glue'
    SIGV4_SIGNING_REGION = 'eu-west-1'
  )
  ENABLED = TRUE;
-- Then let the role trust Snowflake: API_AWS_IAM_USER_ARN and API_AWS_EXTERNAL_ID of this answer.
DESC CATALOG INTEGRATION "LAKEWARD_CATALOG";
-- 21 A database that Snowflake fills from the catalog by itself. It is ALL by default: then a DROP TABLE in Snowflake
--    deletes the lake's data. There is no IF NOT EXISTS for it; leave this statement out when it is there. Its tables are
--    there once Snowflake has found them: what names them below fails until then.
CREATE DATABASE "LAKEWARD_LINKED"
  LINKED_CATALOG = (
    CATALOG = 'LAKEWARD_CATALOG',
    ALLOWED_NAMESPACES = ('lakeward', 'marts', 'shop')
    ALLOWED_WRITE_OPERATIONS = NONE
  )
  EXTERNAL_VOLUME = 'LAKEWARD_VOLUME'
  CATALOG_CASE_SENSITIVITY = CASE_SENSITIVE;

-- 40 The same lake as files: a stage on gold's Parquet exports.
CREATE STORAGE INTEGRATION IF NOT EXISTS "LAKEWARD_STORAGE"
  TYPE = EXTERNAL_STAGE
  STORAGE_PROVIDER = 'S3'
  STORAGE_AWS_ROLE_ARN = 'arn:aws:iam::1:role/r'
  ENABLED = TRUE
  STORAGE_ALLOWED_LOCATIONS = ('s3://bucket/lake/export/');
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
  URL = 's3://bucket/lake/export/'
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

-- 42 How fresh each table is, and whether what Snowflake shows is behind what gold has published. FRESHNESS is what
--    Snowflake shows (it is refreshed last); gold's own word is the file published.json, read from the stage at each query.
--    AGE_SECONDS counts from the source's last commit that is in the table: a quiet source ages, too. The columns of
--    FRESHNESS are named by their place, whatever case Snowflake keeps Iceberg's names in.
--    BEHIND is NULL unless FRESHNESS itself says so: Snowflake refreshes the tables of a linked database each by itself, so
--    that FRESHNESS may be ahead of a table that it speaks of.
CREATE OR REPLACE VIEW "LAKEWARD"."LAKEWARD"."FRESHNESS_NOW" (
  TABLE_SCHEMA, TABLE_NAME, KIND, CUT, ROW_COUNT, SOURCE_COMMIT_AT, PUBLISHED_AT, AGE_SECONDS, PUBLISHED_SECONDS_AGO,
  GOLD_CUT, GOLD_PUBLISHED_AT, BEHIND
)
AS
WITH f (
  TABLE_SCHEMA, TABLE_NAME, KIND, CUT, EPOCH, FILE, POS, SOURCE_COMMIT_MS, SOURCE_COMMIT_AT, PUBLISHED_AT, ROW_COUNT,
  METADATA_FILE
) AS (SELECT * FROM "LAKEWARD_LINKED"."lakeward"."freshness"),
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
  IFF(f.CUT IS DISTINCT FROM g.CUT OR f.METADATA_FILE IS DISTINCT FROM g.METADATA_FILE, TRUE, NULL) AS BEHIND
FROM f
FULL OUTER JOIN g ON f.TABLE_SCHEMA = g.TABLE_SCHEMA AND f.TABLE_NAME = g.TABLE_NAME;

-- 50 A role that reads these tables and can do nothing else. There are no FUTURE grants: a table that is mirrored
--    tomorrow is shown to nobody until this plan, which names it, has been run again.
CREATE ROLE IF NOT EXISTS "LAKEWARD_READER";
GRANT USAGE ON DATABASE "LAKEWARD" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON DATABASE "LAKEWARD_LINKED" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD_LINKED"."lakeward" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD_LINKED"."marts" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD_LINKED"."shop" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD"."LAKEWARD" TO ROLE "LAKEWARD_READER";
GRANT USAGE ON SCHEMA "LAKEWARD"."SHOP__EXPORT" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON ICEBERG TABLE "LAKEWARD_LINKED"."marts"."revenue" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON ICEBERG TABLE "LAKEWARD_LINKED"."shop"."trips" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON ICEBERG TABLE "LAKEWARD_LINKED"."shop"."users" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON ICEBERG TABLE "LAKEWARD_LINKED"."lakeward"."freshness" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON EXTERNAL TABLE "LAKEWARD"."SHOP__EXPORT"."TRIPS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON EXTERNAL TABLE "LAKEWARD"."SHOP__EXPORT"."USERS" TO ROLE "LAKEWARD_READER";
GRANT SELECT ON VIEW "LAKEWARD"."LAKEWARD"."FRESHNESS_NOW" TO ROLE "LAKEWARD_READER";
