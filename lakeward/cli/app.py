"""What every command needs, each part made at its first use: configuration, lake, source, Spark."""

from __future__ import annotations

import functools
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakeward import storage
from lakeward.config import Config, load
from lakeward.embedded import embedded_source
from lakeward.lake import Lake


class App:
    """One command's surroundings. Nothing is read or started before it is asked for."""

    def __init__(self, config_file: str) -> None:
        self.config_file = config_file
        self._spark: SparkSession | None = None
        self._borrowed = False

    @functools.cached_property
    def config(self) -> Config:
        return load(self.config_file)

    @functools.cached_property
    def lake(self) -> Lake:
        storage.announce(self.config.lake)
        return Lake(self.config.root)

    @functools.cached_property
    def source(self) -> tuple[Config, str | None]:
        """The configuration with the source's real address, and its password. Starts the embedded server."""
        import dataclasses

        config = self.config
        if not config.source.embedded:
            return config, config.source.password.reveal() if config.source.password else None
        found = embedded_source(config.embedded_folder)
        return dataclasses.replace(config, source=dataclasses.replace(config.source, url=found.url)), found.password

    def spark(self) -> SparkSession:
        """The Spark session, started when the first stage has something to do; a notebook's own, where it has one."""
        if self._spark is None:
            from lakeward.spark import session_for

            self._borrowed = SparkContext._active_spark_context is not None
            self._spark = session_for(self.config, app="lakeward")
        return self._spark

    def close(self) -> None:
        spark: Any = self._spark
        if spark is not None and not self._borrowed:
            spark.stop()
