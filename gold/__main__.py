"""`python -m gold`: the same as `lakeward gold`."""

from __future__ import annotations

import sys

from lakeward.cli import main

sys.exit(main(["gold", *sys.argv[1:]]))
