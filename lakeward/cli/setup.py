"""`lakeward init` and `lakeward doctor`: the first two commands of somebody with a server of their own."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from bronze.source.connection import connect
from bronze.source.preflight import check
from lakeward.cli.app import App
from lakeward.errors import UsageError

TEMPLATE = """\
[source]
url      = "mysql://replicator@db.example.com:3306"   # or "embedded": a throw-away real server for trying it out
password = "env:MYSQL_PASSWORD"                        # env:NAME or file:PATH
# tls    = { mode = "verify_identity", ca = "/etc/ssl/ca.pem" }
server_id = 7001                                       # unique among the source's replicas
include  = ["shop.*"]                                  # schema.table globs
exclude  = []

[lake]
root = "lake"
"""


def init(app: App, options: argparse.Namespace) -> int:
    path = Path(app.config_file)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except FileExistsError as error:
        raise UsageError(f"{path} is there already", hint="edit it, or name another with -c") from error
    print(f"wrote {path}: set url and include, then `lakeward doctor`")
    return 0


def doctor(app: App, options: argparse.Namespace) -> int:
    config, password = app.source
    with contextlib.closing(connect(config.source, password)) as connection:
        findings = check(connection, config)
    for finding in findings:
        print(f"{finding.level}: {finding.what}")
        if finding.remedy:
            print(f"    {finding.remedy}")
    errors = sum(f.level == "error" for f in findings)
    print("the source is ready" if not errors else f"{errors} to mend before the source is ready")
    return 1 if errors else 0
