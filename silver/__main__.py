"""`python -m silver`: the same as `lakeward silver`."""

from __future__ import annotations

import sys

from lakeward.cli import main

sys.exit(main(["silver", *sys.argv[1:]]))
