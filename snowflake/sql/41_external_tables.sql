-- 41 External tables on the current exports. Each export lies in a folder of its own and never changes, so the table is
--    replaced together with its LOCATION; its grants stay. Prefer the Iceberg tables: an external table skips a file
--    that it cannot read, without an error.
-- @each export_stages
-- 41 A folder whose name holds -- needs quotes, which a LOCATION does not know: it is the URL of a stage of the table's.
-- @when integrated
CREATE STAGE IF NOT EXISTS {{name:own_stage}}
  URL = {{url:own_url}}
  STORAGE_INTEGRATION = {{identifier:storage_integration}}
  FILE_FORMAT = (FORMAT_NAME = {{name:file_format}});
-- @end
-- @when s3compat
CREATE STAGE IF NOT EXISTS {{name:own_stage}}
  URL = {{url:own_url}}
  ENDPOINT = {{literal:endpoint}}
  CREDENTIALS = (AWS_KEY_ID = {{secret:storage_key_id}} AWS_SECRET_KEY = {{secret:storage_secret_key}})
  FILE_FORMAT = (FORMAT_NAME = {{name:file_format}});
-- @end
-- @end
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
