"""A Snowflake account for tests: it records what is run, and answers SHOW and DESC as Snowflake's documentation says.

Only statements that a plan may hold are known; any other is a failure of the test. `fail_at` breaks the connection
before the statement of that number.
"""

from __future__ import annotations

import json
import re
from typing import Any

from lakeward.errors import TransientError
from snowflake.lakehouse.statements import Statement, parts, property_of, statements


class Account:
    """Also the session: `run`, `rows`, `dicts` and `close`, as `snowflake.lakehouse.connection.Session` has them."""

    database = "LAKEWARD"

    def __init__(self) -> None:
        self.objects: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
        self.grants: list[dict[str, Any]] = []
        self.ran: list[str] = []  # but for questions
        self.fail_at: int | None = None

    def close(self) -> None:
        pass

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        found = re.fullmatch(r"SELECT SYSTEM\$GET_ICEBERG_TABLE_INFORMATION\('(.*)'\)", statement, re.DOTALL)
        assert found, statement
        name = parts(found[1].replace("''", "'").replace("\\\\", "\\"))
        where = self.objects["ICEBERG TABLE", name]["metadata"]
        return [(json.dumps({"metadataLocation": f"s3://bucket/lake/{where}", "status": "success"}),)]

    def dicts(self, statement: str) -> list[dict[str, Any]]:
        if statement.startswith("SHOW GRANTS TO ROLE "):
            return self.grants
        if found := re.fullmatch(r"SHOW ([A-Z ]+?)(?: LIKE '(.*)'| IN DATABASE \"(.*)\")", statement, re.DOTALL):
            kind = {"DATABASES": "DATABASE"}.get(found[1], found[1].removesuffix("S"))
            return [p for (k, n), p in self.objects.items() if k == kind and (found[3] is None or n[0] == found[3])]
        if statement.startswith("DESC "):
            return self._describe(statement)
        if self.fail_at is not None and len(self.ran) == self.fail_at:
            self.fail_at = None
            raise TransientError("the connection is gone")
        self.ran.append(statement)
        self._run(statement)
        return []

    def _describe(self, statement: str) -> list[dict[str, Any]]:
        name = parts(statement)
        if statement.startswith("DESC CATALOG"):
            return [{"property": "GLUE_AWS_IAM_USER_ARN", "property_value": "arn:aws:iam::9:user/x"}]
        text = self.objects["EXTERNAL VOLUME", name]["sql"]
        url = re.search(r"STORAGE_BASE_URL = '(.*)'", text)
        assert url
        value = {"NAME": "lakeward", "STORAGE_BASE_URL": url[1], "STORAGE_AWS_IAM_USER_ARN": "arn:aws:iam::9:user/x"}
        row = {"parent_property": "STORAGE_LOCATIONS", "property": "STORAGE_LOCATION_1"}
        return [{**row, "property_type": "String", "property_value": json.dumps(value), "property_default": ""}]

    def _run(self, text: str) -> None:
        if found := re.fullmatch(r"DROP ([A-Z ]+?) (?:IF EXISTS )?(\".*\")", text, re.DOTALL):
            self.objects.pop((found[1], parts(found[2])))
            self.grants = [g for g in self.grants if g["name"] != _granted(parts(found[2]))]
        elif found := re.fullmatch(r"REVOKE (\w+) ON ([A-Z ]+?) (\".*\") FROM ROLE (\".*\")", text, re.DOTALL):
            named = _granted(parts(found[3]))
            self.grants = [g for g in self.grants if (g["privilege"], g["name"]) != (found[1], named)]
        elif found := re.fullmatch(r"ALTER EXTERNAL VOLUME (\".*\") SET ALLOW_WRITES = FALSE", text):
            self.objects["EXTERNAL VOLUME", parts(found[1])]["allow_writes"] = "false"
        else:
            self._plain(statements(text + ";")[0])

    def _plain(self, of: Statement) -> None:
        key = of.kind, of.name
        if of.action in ("create", "replace"):
            assert of.action == "replace" or "IF NOT EXISTS" not in of.text or key not in self.objects, of.text
            self.objects[key] = self._shown(of)
            if "COPY GRANTS" not in of.text:  # grants go with the object
                self.grants = [g for g in self.grants if g["name"] != _granted(of.name)]
        elif of.action == "refresh":
            self.objects[key]["metadata"] = of.path or "by its catalog"
        elif of.action == "grant":
            kind = of.kind.rpartition(" ")[2]
            row = {"privilege": of.privilege, "granted_on": kind, "name": _granted(of.name)}
            self.grants.append({**row, "granted_to": "ROLE", "grantee_name": of.role[0], "grant_option": "false"})
        else:
            raise AssertionError(f"no statement of a plan: {of.text}")

    def _shown(self, of: Statement) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": of.name[-1], "sql": of.text, "text": of.text}
        if len(of.name) > 1:
            shown["database_name"] = of.name[0]
        if len(of.name) > 2:
            shown["schema_name"] = of.name[1]
        if of.kind == "EXTERNAL VOLUME":
            shown["allow_writes"] = "false" if "ALLOW_WRITES = FALSE" in of.text else "true"
        if of.kind == "ICEBERG TABLE":
            named = {"catalog_name": "CATALOG", "external_volume_name": "EXTERNAL_VOLUME"}
            named |= {"catalog_table_name": "CATALOG_TABLE_NAME", "catalog_namespace": "CATALOG_NAMESPACE"}
            named |= {"base_location": "BASE_LOCATION", "metadata": "METADATA_FILE_PATH"}
            shown |= {column: property_of(of, name) for column, name in named.items()}
            shown["metadata"] = shown["metadata"] or "by its catalog"
        if of.kind == "EXTERNAL TABLE":
            place = of.text.partition("WITH LOCATION = ")[2].split("\n")[0]
            shown["location"] = place.replace('"', "")
        if of.kind == "STAGE":
            shown["url"] = property_of(of, "URL")
        return shown


def _granted(name: tuple[str, ...]) -> str:
    """As SHOW GRANTS writes a name: in quotes where it needs them."""
    return ".".join(p if re.fullmatch("[A-Z_][A-Z0-9_$]*", p) else '"' + p.replace('"', '""') + '"' for p in name)
