-- 30 One Iceberg table for each table that gold has published. A table that is there already stays as it is.
-- @each tables
CREATE ICEBERG TABLE IF NOT EXISTS {{name:table}}
  EXTERNAL_VOLUME = {{literal:external_volume}}
  CATALOG = {{literal:catalog_integration}}
  METADATA_FILE_PATH = {{path:metadata_file}};
-- @end
