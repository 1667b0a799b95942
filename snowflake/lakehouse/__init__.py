"""The lake as Snowflake sees it: the SQL that exposes it, and the sink that merges into it."""
