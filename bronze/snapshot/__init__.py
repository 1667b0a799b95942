"""The snapshot: tables cut into chunks by key, and each chunk read from the server straight into Arrow."""
