"""Whether Snowflake can trust what gold has published: its rules, each checked on the real files and on the SQL."""
