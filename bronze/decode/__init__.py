"""Row images and column values to Arrow: what both paths into bronze share."""
