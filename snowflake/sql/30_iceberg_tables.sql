-- @when by_path
-- 30 One Iceberg table for each table that gold has published. A table that is there already stays as it is.
-- @each tables
CREATE ICEBERG TABLE IF NOT EXISTS {{name:table}}
  EXTERNAL_VOLUME = {{literal:external_volume}}
  CATALOG = {{literal:catalog_integration}}
  METADATA_FILE_PATH = {{path:metadata_file}};
-- @end
-- @end
-- @when by_name
-- 30 One Iceberg table for each table that gold has published. A table that is there already stays as it is. Lakeward
--    refreshes after each publication, so Snowflake need not poll (which it bills).
-- @each tables
CREATE ICEBERG TABLE IF NOT EXISTS {{name:table}}
-- @when volume_tables
  EXTERNAL_VOLUME = {{literal:external_volume}}
-- @end
  CATALOG = {{literal:catalog_integration}}
  CATALOG_TABLE_NAME = {{literal:catalog_table}}
  CATALOG_NAMESPACE = {{literal:catalog_namespace}}
  AUTO_REFRESH = FALSE;
-- @end
-- @end
