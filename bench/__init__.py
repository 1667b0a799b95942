"""Benchmarks: each prints ratios against a peer that ran beside it, on the same server and the same data."""
