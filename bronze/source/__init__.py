"""The source server, besides its binlog: connections, what it is, where it stands, what it must have, its tables."""
