"""dlt with connectorx, MySQL to Delta: `python load_with_dlt.py`, in .venv-peers, the request as JSON on its standard
input. Prints the seconds of each round.

It is a script of its own: the environment it runs in has nothing of Lakeward's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
os.environ["RUNTIME__LOG_LEVEL"] = "ERROR"

import dlt
import pyarrow as pa
from dlt.sources.sql_database import sql_table


def main() -> None:
    request = json.load(sys.stdin)
    seconds = []
    for number in range(request["rounds"]):
        folder = Path(request["folder"]) / str(number)
        folder.mkdir(parents=True)
        began = time.perf_counter()
        rows = sql_table(
            credentials=request["url"],
            table=request["table"],
            schema=request["schema"],
            backend="connectorx",
            backend_kwargs={"conn": request["url"].replace("mysql+pymysql:", "mysql:")},
            reflection_level="full",
        )
        rows.add_map(_signed)
        destination = dlt.destinations.filesystem(bucket_url=folder.as_uri())
        pipeline = dlt.pipeline(
            f"bench_{number}", destination=destination, dataset_name="bench", pipelines_dir=str(folder / "state")
        )
        pipeline.run(rows, table_format="delta", write_disposition="replace")
        seconds.append(time.perf_counter() - began)
    print(json.dumps(seconds))


def _signed(table: pa.Table) -> pa.Table:
    """Unsigned columns as BIGINT: Delta has none, and without this the load fails at a value over 2147483647."""
    kinds = {pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}
    return table.cast(pa.schema([f.with_type(kinds.get(f.type, f.type)) for f in table.schema]))


if __name__ == "__main__":
    main()
