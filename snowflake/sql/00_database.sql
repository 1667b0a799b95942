-- 00 The database, one schema for each schema of the source, and one for what Lakeward says of itself.
CREATE DATABASE IF NOT EXISTS {{identifier:database}};
-- @each schemas
CREATE SCHEMA IF NOT EXISTS {{name:schema}};
-- @end
