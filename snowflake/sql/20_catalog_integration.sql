-- 20 How Snowflake reads the tables: from Iceberg's own metadata files, without a catalog server.
CREATE CATALOG INTEGRATION IF NOT EXISTS {{identifier:catalog_integration}}
  CATALOG_SOURCE = OBJECT_STORE
  TABLE_FORMAT = ICEBERG
  ENABLED = TRUE;
