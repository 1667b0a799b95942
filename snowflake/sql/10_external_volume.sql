-- @when volume
-- 10 Where Snowflake finds the lake. ALLOW_WRITES is TRUE by default; this lake is written by Lakeward alone.
-- @when s3
CREATE EXTERNAL VOLUME IF NOT EXISTS {{identifier:external_volume}}
  STORAGE_LOCATIONS = (
    (
      NAME = 'lakeward'
      STORAGE_PROVIDER = 'S3'
      STORAGE_BASE_URL = {{url:base_url}}
      STORAGE_AWS_ROLE_ARN = {{literal:aws_role_arn}}
-- @when aws_external_id
      STORAGE_AWS_EXTERNAL_ID = {{literal:aws_external_id}}
-- @end
    )
  )
  ALLOW_WRITES = FALSE;
-- Then let the role trust Snowflake: STORAGE_AWS_IAM_USER_ARN and STORAGE_AWS_EXTERNAL_ID of this answer.
-- @end
-- @when gcs
CREATE EXTERNAL VOLUME IF NOT EXISTS {{identifier:external_volume}}
  STORAGE_LOCATIONS = (
    (
      NAME = 'lakeward'
      STORAGE_PROVIDER = 'GCS'
      STORAGE_BASE_URL = {{url:base_url}}
    )
  )
  ALLOW_WRITES = FALSE;
-- Then let the service account STORAGE_GCP_SERVICE_ACCOUNT of this answer read the bucket.
-- @end
-- @when azure
CREATE EXTERNAL VOLUME IF NOT EXISTS {{identifier:external_volume}}
  STORAGE_LOCATIONS = (
    (
      NAME = 'lakeward'
      STORAGE_PROVIDER = 'AZURE'
      STORAGE_BASE_URL = {{url:base_url}}
      AZURE_TENANT_ID = {{literal:azure_tenant_id}}
    )
  )
  ALLOW_WRITES = FALSE;
-- Then open AZURE_CONSENT_URL of this answer, and give that application the role "Storage Blob Data Reader".
-- @end
-- @when s3compat
CREATE EXTERNAL VOLUME IF NOT EXISTS {{identifier:external_volume}}
  STORAGE_LOCATIONS = (
    (
      NAME = 'lakeward'
      STORAGE_PROVIDER = 'S3COMPAT'
      STORAGE_BASE_URL = {{url:base_url}}
      STORAGE_ENDPOINT = {{literal:endpoint}}
      CREDENTIALS = (
        AWS_KEY_ID = {{secret:storage_key_id}}
        AWS_SECRET_KEY = {{secret:storage_secret_key}}
      )
    )
  )
  ALLOW_WRITES = FALSE;
-- @end
DESC EXTERNAL VOLUME {{identifier:external_volume}};
-- @end
