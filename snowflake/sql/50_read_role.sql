-- 50 A role that reads these tables and can do nothing else. There are no FUTURE grants: a table that is mirrored
--    tomorrow is shown to nobody until this plan, which names it, has been run again.
CREATE ROLE IF NOT EXISTS {{identifier:read_role}};
GRANT USAGE ON DATABASE {{identifier:database}} TO ROLE {{identifier:read_role}};
-- @when linked
GRANT USAGE ON DATABASE {{identifier:linked_database}} TO ROLE {{identifier:read_role}};
-- @each linked_schemas
GRANT USAGE ON SCHEMA {{name:schema}} TO ROLE {{identifier:read_role}};
-- @end
-- @end
-- @when warehouse
GRANT USAGE ON WAREHOUSE {{identifier:warehouse}} TO ROLE {{identifier:read_role}};
-- @end
-- @each schemas
GRANT USAGE ON SCHEMA {{name:schema}} TO ROLE {{identifier:read_role}};
-- @end
-- @each tables
GRANT SELECT ON ICEBERG TABLE {{name:table}} TO ROLE {{identifier:read_role}};
-- @end
-- @each freshness_tables
GRANT SELECT ON ICEBERG TABLE {{name:table}} TO ROLE {{identifier:read_role}};
-- @end
-- @each delta_tables
GRANT SELECT ON ICEBERG TABLE {{name:table}} TO ROLE {{identifier:read_role}};
-- @end
-- @each exports
GRANT SELECT ON EXTERNAL TABLE {{name:table}} TO ROLE {{identifier:read_role}};
-- @end
-- @each landed_tables
GRANT SELECT ON DYNAMIC TABLE {{name:table}} TO ROLE {{identifier:read_role}};
GRANT SELECT ON DYNAMIC TABLE {{name:history}} TO ROLE {{identifier:read_role}};
-- @end
-- @when freshness
GRANT SELECT ON VIEW {{name:freshness_view}} TO ROLE {{identifier:read_role}};
-- @end
