"""What foreign keys did to children inside the engine, where the binlog does not say it: see docs/adr/0011."""
