-- @when object_store
-- 20 How Snowflake reads the tables: from Iceberg's own metadata files, without a catalog server.
CREATE CATALOG INTEGRATION IF NOT EXISTS {{identifier:catalog_integration}}
  CATALOG_SOURCE = OBJECT_STORE
  TABLE_FORMAT = ICEBERG
  ENABLED = TRUE;
-- @end
-- @when glue
-- 20 How Snowflake finds the tables: in Glue's catalog. Each table names its own namespace.
CREATE CATALOG INTEGRATION IF NOT EXISTS {{identifier:catalog_integration}}
  CATALOG_SOURCE = GLUE
  TABLE_FORMAT = ICEBERG
  CATALOG_NAMESPACE = 'lakeward'
  GLUE_AWS_ROLE_ARN = {{literal:aws_catalog_role_arn}}
  GLUE_CATALOG_ID = {{literal:aws_catalog_id}}
-- @when aws_region
  GLUE_REGION = {{literal:aws_region}}
-- @end
  ENABLED = TRUE;
-- Then let the role trust Snowflake: GLUE_AWS_IAM_USER_ARN and GLUE_AWS_EXTERNAL_ID of this answer.
DESC CATALOG INTEGRATION {{identifier:catalog_integration}};
-- @end
-- @when rest
-- 20 How Snowflake finds the tables: in the Iceberg REST catalog that gold commits to.
CREATE CATALOG INTEGRATION IF NOT EXISTS {{identifier:catalog_integration}}
  CATALOG_SOURCE = ICEBERG_REST
  TABLE_FORMAT = ICEBERG
  REST_CONFIG = (
    CATALOG_URI = {{literal:rest_uri}}
-- @when rest_catalog_name
    CATALOG_NAME = {{literal:rest_catalog_name}}
-- @end
-- @when rest_glue
    CATALOG_API_TYPE = AWS_GLUE
-- @end
-- @when vended
    ACCESS_DELEGATION_MODE = VENDED_CREDENTIALS
-- @end
-- @when not_vended
    ACCESS_DELEGATION_MODE = EXTERNAL_VOLUME_CREDENTIALS
-- @end
  )
  REST_AUTHENTICATION = (
-- @when oauth
    TYPE = OAUTH
-- @when rest_oauth_token_uri
    OAUTH_TOKEN_URI = {{literal:rest_oauth_token_uri}}
-- @end
    OAUTH_CLIENT_ID = {{literal:rest_oauth_client_id}}
    OAUTH_CLIENT_SECRET = {{secret:rest_oauth_client_secret}}
    OAUTH_ALLOWED_SCOPES = {{literals:rest_oauth_scopes}}
-- @end
-- @when bearer
    TYPE = BEARER
    BEARER_TOKEN = {{secret:rest_bearer_token}}
-- @end
-- @when sigv4
    TYPE = SIGV4
    SIGV4_IAM_ROLE = {{literal:aws_catalog_role_arn}}
-- @when aws_region
    SIGV4_SIGNING_REGION = {{literal:aws_region}}
-- @end
-- @end
  )
  ENABLED = TRUE;
-- @when sigv4
-- Then let the role trust Snowflake: API_AWS_IAM_USER_ARN and API_AWS_EXTERNAL_ID of this answer.
DESC CATALOG INTEGRATION {{identifier:catalog_integration}};
-- @end
-- @end
-- @when linked
-- 21 A database that Snowflake fills from the catalog by itself. It is ALL by default: then a DROP TABLE in Snowflake
--    deletes the lake's data. There is no IF NOT EXISTS for it; leave this statement out when it is there. Its tables are
--    there once Snowflake has found them: what names them below fails until then.
CREATE DATABASE {{identifier:linked_database}}
  LINKED_CATALOG = (
    CATALOG = {{literal:catalog_integration}},
    ALLOWED_NAMESPACES = {{literals:namespaces}}
    ALLOWED_WRITE_OPERATIONS = NONE
  )
-- @when volume_tables
  EXTERNAL_VOLUME = {{literal:external_volume}}
-- @end
  CATALOG_CASE_SENSITIVITY = CASE_SENSITIVE;
-- @end
