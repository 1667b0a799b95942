"""Gold: what analysts read, published from one cut as Iceberg, marts and Parquet."""
