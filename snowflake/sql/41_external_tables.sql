-- 41 External tables on the current exports. Each export lies in a folder of its own and never changes, so the table is
--    replaced together with its LOCATION; its grants stay. Prefer the Iceberg tables: an external table skips a file
--    that it cannot read, without an error.
-- @each exports
CREATE OR REPLACE EXTERNAL TABLE {{name:table}} (
  {{external_columns:columns}}
)
  WITH LOCATION = {{stage_path:location}}
  REFRESH_ON_CREATE = TRUE
  AUTO_REFRESH = FALSE
  FILE_FORMAT = (FORMAT_NAME = {{name:file_format}})
  COPY GRANTS;
-- @end
