-- @when by_path
-- 42 Freshness is made and moved after everything that it speaks of, so that it never claims what is not there.
-- @each freshness_tables
CREATE ICEBERG TABLE IF NOT EXISTS {{name:table}}
  EXTERNAL_VOLUME = {{literal:external_volume}}
  CATALOG = {{literal:catalog_integration}}
  METADATA_FILE_PATH = {{path:metadata_file}};
ALTER ICEBERG TABLE {{name:table}} REFRESH {{path:metadata_file}};
-- @end
-- @end
-- @when by_name
-- 42 Freshness is made and moved after everything that it speaks of, so that it never claims what is not there.
-- @each freshness_tables
CREATE ICEBERG TABLE IF NOT EXISTS {{name:table}}
-- @when volume_tables
  EXTERNAL_VOLUME = {{literal:external_volume}}
-- @end
  CATALOG = {{literal:catalog_integration}}
  CATALOG_TABLE_NAME = {{literal:catalog_table}}
  CATALOG_NAMESPACE = {{literal:catalog_namespace}}
  AUTO_REFRESH = FALSE;
ALTER ICEBERG TABLE {{name:table}} REFRESH;
-- @end
-- @end
-- 42 How fresh each table is, and whether what Snowflake shows is behind what gold has published. FRESHNESS is what
--    Snowflake shows (it is refreshed last); gold's own word is the file published.json, read from the stage at each query.
--    AGE_SECONDS counts from the source's last commit that is in the table: a quiet source ages, too. The columns of
--    FRESHNESS are named by their place, whatever case Snowflake keeps Iceberg's names in.
-- @when linked
--    BEHIND is NULL unless FRESHNESS itself says so: Snowflake refreshes the tables of a linked database each by itself, so
--    that FRESHNESS may be ahead of a table that it speaks of.
-- @end
-- @when freshness
CREATE OR REPLACE VIEW {{name:freshness_view}} (
  TABLE_SCHEMA, TABLE_NAME, KIND, CUT, ROW_COUNT, SOURCE_COMMIT_AT, PUBLISHED_AT, AGE_SECONDS, PUBLISHED_SECONDS_AGO,
  GOLD_CUT, GOLD_PUBLISHED_AT, BEHIND
)
AS
WITH f (
  TABLE_SCHEMA, TABLE_NAME, KIND, CUT, EPOCH, FILE, POS, SOURCE_COMMIT_MS, SOURCE_COMMIT_AT, PUBLISHED_AT, ROW_COUNT,
  METADATA_FILE
) AS (SELECT * FROM {{name:freshness}}),
g (TABLE_SCHEMA, TABLE_NAME, KIND, CUT, PUBLISHED_AT, METADATA_FILE) AS (
  SELECT
    $1:table_schema::VARCHAR, $1:table_name::VARCHAR, $1:kind::VARCHAR, $1:cut::VARCHAR,
    TO_TIMESTAMP_LTZ($1:published_ms::NUMBER, 3), $1:metadata_file::VARCHAR
  FROM {{stage_path:published}} (FILE_FORMAT => {{literal_name:json_format}})
)
SELECT
  COALESCE(f.TABLE_SCHEMA, g.TABLE_SCHEMA), COALESCE(f.TABLE_NAME, g.TABLE_NAME), COALESCE(f.KIND, g.KIND),
  f.CUT, f.ROW_COUNT, f.SOURCE_COMMIT_AT, f.PUBLISHED_AT,
  DATEDIFF('second', f.SOURCE_COMMIT_AT, CURRENT_TIMESTAMP()) AS AGE_SECONDS,
  DATEDIFF('second', f.PUBLISHED_AT, CURRENT_TIMESTAMP()) AS PUBLISHED_SECONDS_AGO,
  g.CUT, g.PUBLISHED_AT,
-- @when in_order
  f.CUT IS DISTINCT FROM g.CUT OR f.METADATA_FILE IS DISTINCT FROM g.METADATA_FILE AS BEHIND
-- @end
-- @when linked
  IFF(f.CUT IS DISTINCT FROM g.CUT OR f.METADATA_FILE IS DISTINCT FROM g.METADATA_FILE, TRUE, NULL) AS BEHIND
-- @end
FROM f
FULL OUTER JOIN g ON f.TABLE_SCHEMA = g.TABLE_SCHEMA AND f.TABLE_NAME = g.TABLE_NAME;
-- @end
