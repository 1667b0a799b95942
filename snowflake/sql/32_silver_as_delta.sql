-- @when delta
-- 32 Silver as it is, by Delta's own log. A refresh takes at most 1,000 commits past a checkpoint; Snowflake writes nothing.
CREATE CATALOG INTEGRATION IF NOT EXISTS {{identifier:delta_integration}}
  CATALOG_SOURCE = OBJECT_STORE
  TABLE_FORMAT = DELTA
  ENABLED = TRUE;
-- @each delta_tables
CREATE ICEBERG TABLE IF NOT EXISTS {{name:table}}
  EXTERNAL_VOLUME = {{literal:external_volume}}
  CATALOG = {{literal:delta_integration}}
  BASE_LOCATION = {{path:base_location}}
  AUTO_REFRESH = FALSE;
-- @end
-- @each delta_tables
ALTER ICEBERG TABLE {{name:table}} REFRESH;
-- @end
-- @end
