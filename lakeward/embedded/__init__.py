"""A real MySQL or MariaDB in a folder, for trying Lakeward out and for its tests."""

from lakeward.embedded.source import EmbeddedSource, demo_down, demo_traffic, demo_up, embedded_source

__all__ = ["EmbeddedSource", "demo_down", "demo_traffic", "demo_up", "embedded_source"]
