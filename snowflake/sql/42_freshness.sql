-- 42 How fresh each table is. The columns are named by their place, whatever case Snowflake keeps Iceberg's names in.
--    AGE_SECONDS counts from the source's last commit that is in the table: a quiet source ages, too.
-- @when freshness
CREATE OR REPLACE VIEW {{name:freshness_view}} (
  TABLE_SCHEMA, TABLE_NAME, KIND, CUT, ROW_COUNT, SOURCE_COMMIT_AT, PUBLISHED_AT, AGE_SECONDS, PUBLISHED_SECONDS_AGO
)
AS
WITH f (
  TABLE_SCHEMA, TABLE_NAME, KIND, CUT, EPOCH, FILE, POS, SOURCE_COMMIT_MS, SOURCE_COMMIT_AT, PUBLISHED_AT, ROW_COUNT,
  METADATA_FILE
) AS (SELECT * FROM {{name:freshness}})
SELECT
  f.TABLE_SCHEMA, f.TABLE_NAME, f.KIND, f.CUT, f.ROW_COUNT, f.SOURCE_COMMIT_AT, f.PUBLISHED_AT,
  DATEDIFF('second', f.SOURCE_COMMIT_AT, CURRENT_TIMESTAMP()) AS AGE_SECONDS,
  DATEDIFF('second', f.PUBLISHED_AT, CURRENT_TIMESTAMP()) AS PUBLISHED_SECONDS_AGO
FROM f;
-- @end
