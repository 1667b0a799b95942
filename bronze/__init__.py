"""Bronze: every change the source ever made, from snapshot and binlog, append-only in Delta."""
