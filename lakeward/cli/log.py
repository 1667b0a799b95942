"""What a command logs, on stderr: each statement that Snowflake's plan runs, and everybody's warnings.

Only `snowflake.lakehouse` says what it does as it does it (INFO): an administrator wants to read what was changed, also
where a run of gold changed it by itself. In a statement a secret's name stands in its place. All other loggers stay as
Python has them without any configuration, warnings alone.
"""

from __future__ import annotations

import logging
import sys

TOLD = "snowflake.lakehouse"


class _Stderr(logging.Handler):
    """Writes to what stderr is at the time, as a test or a notebook may replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def configure() -> None:
    """Once or again: there is one handler."""
    logger = logging.getLogger(TOLD)
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        logger.addHandler(_Stderr())
