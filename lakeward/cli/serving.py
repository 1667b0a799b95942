"""What `lakeward gold` and `lakeward run` do for Snowflake between their stages, where it is configured.

Snowflake's connector and PyIceberg take a second to import, so they are when there is something to do.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakeward.cli.app import App
from snowflake.lakehouse.batches import Waiting
from snowflake.lakehouse.follow import follow_gold

if TYPE_CHECKING:
    from snowflake.lakehouse.connection import Session


def follow(app: App) -> None:
    """After gold: say what is published, check it, and refresh Snowflake where that is configured."""

    def login() -> Session:
        from snowflake.lakehouse.connection import connect

        return connect(app.config.snowflake, purpose="refresh")

    count = follow_gold(app.lake, app.config, login)
    if count:
        print(f"snowflake {count:>7,} changes: it shows what gold has published")


class Serving:
    """A run's way to Snowflake besides gold."""

    def __init__(self, app: App, *, continuous: bool) -> None:
        config = app.config.snowflake
        self._app, self._continuous = app, continuous
        self._waiting = Waiting(config.sink_batch_rows, config.sink_batch_seconds)

    def after_bronze(self) -> None:
        """Land bronze's new events."""
        if self._app.config.landing.tables:
            from lakeward.cli.snowflake import land_events

            land_events(self._app, patient=self._continuous)

    def after_silver(self, changes: int) -> None:
        """Sink what silver has: at once, and in a run that goes on when it is enough or has waited long enough."""
        if self._app.config.snowflake.sink == "manual":
            return
        self._waiting.add(changes, time.monotonic())
        if not self._continuous or self._waiting.due(time.monotonic()):
            from lakeward.cli.snowflake import sink_tables

            sink_tables(self._app, ())
            self._waiting.done()
