"""A real MySQL or MariaDB in a folder, for trying Lakeward out and for its tests."""
