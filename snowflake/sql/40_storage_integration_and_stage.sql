-- 40 The same lake as files: a stage on gold's Parquet exports.
-- @when s3
CREATE STORAGE INTEGRATION IF NOT EXISTS {{identifier:storage_integration}}
  TYPE = EXTERNAL_STAGE
  STORAGE_PROVIDER = 'S3'
  STORAGE_AWS_ROLE_ARN = {{literal:aws_role_arn}}
  ENABLED = TRUE
  STORAGE_ALLOWED_LOCATIONS = {{literals:export_urls}};
-- @end
-- @when gcs
CREATE STORAGE INTEGRATION IF NOT EXISTS {{identifier:storage_integration}}
  TYPE = EXTERNAL_STAGE
  STORAGE_PROVIDER = 'GCS'
  ENABLED = TRUE
  STORAGE_ALLOWED_LOCATIONS = {{literals:export_urls}};
-- @end
-- @when azure
CREATE STORAGE INTEGRATION IF NOT EXISTS {{identifier:storage_integration}}
  TYPE = EXTERNAL_STAGE
  STORAGE_PROVIDER = 'AZURE'
  AZURE_TENANT_ID = {{literal:azure_tenant_id}}
  ENABLED = TRUE
  STORAGE_ALLOWED_LOCATIONS = {{literals:export_urls}};
-- @end
-- @when integrated
-- Then let the role trust Snowflake for this one, too: it has an identity, and an external id, of its own.
DESC STORAGE INTEGRATION {{identifier:storage_integration}};
-- @end
CREATE FILE FORMAT IF NOT EXISTS {{name:file_format}}
  TYPE = PARQUET
  USE_LOGICAL_TYPE = TRUE
  BINARY_AS_TEXT = FALSE;
CREATE FILE FORMAT IF NOT EXISTS {{name:json_format}}
  TYPE = JSON
  COMPRESSION = AUTO
  STRIP_OUTER_ARRAY = FALSE;
-- @when integrated
CREATE STAGE IF NOT EXISTS {{name:stage}}
  URL = {{url:export_url}}
  STORAGE_INTEGRATION = {{identifier:storage_integration}}
  FILE_FORMAT = (FORMAT_NAME = {{name:file_format}});
-- @end
-- @when s3compat
CREATE STAGE IF NOT EXISTS {{name:stage}}
  URL = {{url:export_url_s3compat}}
  ENDPOINT = {{literal:endpoint}}
  CREDENTIALS = (AWS_KEY_ID = {{secret:storage_key_id}} AWS_SECRET_KEY = {{secret:storage_secret_key}})
  FILE_FORMAT = (FORMAT_NAME = {{name:file_format}});
-- @end
