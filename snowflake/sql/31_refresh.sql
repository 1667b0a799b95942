-- @when by_path
-- 31 Move each table to gold's current snapshot. Run this after every run of gold, outside of a transaction, and then
--    part 42, which moves freshness.
-- @each tables
ALTER ICEBERG TABLE {{name:table}} REFRESH {{path:metadata_file}};
-- @end
-- @end
-- @when by_name
-- 31 Move each table to the catalog's current snapshot. Run this after every run of gold, and then part 42, which moves
--    freshness.
-- @each tables
ALTER ICEBERG TABLE {{name:table}} REFRESH;
-- @end
-- @end
