"""The demo database: a ride service, and things that users reserve."""
