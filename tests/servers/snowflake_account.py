"""A Snowflake account for tests: it records what is run, and answers SHOW and DESC as Snowflake's documentation says.

Only statements that a plan may hold are known; any other is a failure of the test, and so is one that an independent
reader of Snowflake's quotes and comments does not read as it is written. `fail_at` breaks the connection before the
statement of that number. What a linked database holds is there once the test has called `discover`.
"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

from lakeward.errors import TransientError
from snowflake.lakehouse.statements import Statement, location_of, parts, property_of, settings_of, statements

_spec = importlib.util.spec_from_file_location(
    "snowflake_tokens", Path(__file__).parents[1] / "snowflake" / "tokens.py"
)
assert _spec is not None
assert _spec.loader is not None
_tokens = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_tokens)

OF_ACCOUNT = ("DATABASE", "EXTERNAL VOLUME", "CATALOG INTEGRATION", "STORAGE INTEGRATION", "ROLE")
REST = ("CATALOG_URI", "CATALOG_NAME", "CATALOG_API_TYPE", "ACCESS_DELEGATION_MODE")
LOGIN = ("TYPE", "OAUTH_TOKEN_URI", "OAUTH_CLIENT_ID", "SIGV4_IAM_ROLE", "SIGV4_SIGNING_REGION")


class Account:
    """Also the session: `run`, `rows`, `dicts` and `close`, as `snowflake.lakehouse.connection.Session` has them."""

    database = "LAKEWARD"

    def __init__(self) -> None:
        self.objects: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
        self.settings: dict[tuple[str, tuple[str, ...]], dict[str, str]] = {}  # of volumes and integrations
        self.linked: dict[tuple[str, ...], dict[str, Any]] = {}  # the settings of linked databases
        self.secrets: dict[tuple[str, tuple[str, ...]], str] = {}
        self.grants: list[dict[str, Any]] = []
        self.ran: list[str] = []  # but for questions
        self.fail_at: int | None = None

    def close(self) -> None:
        pass

    def discover(self, database: str, *tables: tuple[str, str]) -> None:
        """Snowflake has found these in the catalog."""
        for schema, table in tables:
            assert schema in self.linked[(database,)]["allowed_namespaces"]
            place = {"database_name": database, "name": schema}
            self.objects["SCHEMA", (database, schema)] = place
            shown = {
                "database_name": database,
                "schema_name": schema,
                "name": table,
                "catalog_name": "LAKEWARD_CATALOG",
            }
            self.objects["ICEBERG TABLE", (database, schema, table)] = {**shown, "metadata": "by its catalog"}

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        found = re.fullmatch(r"SELECT SYSTEM\$(\w+)\('(.*)'\)", statement, re.DOTALL)
        assert found, statement
        text = found[2].replace("''", "'").replace("\\\\", "\\")
        if found[1] == "GET_CATALOG_LINKED_DATABASE_CONFIG":
            return [(json.dumps(self.linked[(text,)]),)]
        assert found[1] == "GET_ICEBERG_TABLE_INFORMATION", statement
        where = self.objects["ICEBERG TABLE", parts(text)]["metadata"]
        return [(json.dumps({"metadataLocation": f"s3://bucket/lake/{where}", "status": "success"}),)]

    def dicts(self, statement: str) -> list[dict[str, Any]]:
        assert len(_tokens.split(statement)) == 1, statement
        if statement.startswith("SHOW GRANTS TO ROLE "):
            return self.grants
        if found := re.fullmatch(r"SHOW ([A-Z ]+?)(?: LIKE '(.*)'| IN DATABASE \"(.*)\")", statement, re.DOTALL):
            kind = {"DATABASES": "DATABASE"}.get(found[1], found[1].removesuffix("S"))
            return [p for (k, n), p in self.objects.items() if k == kind and (found[3] is None or n[0] == found[3])]
        if found := re.fullmatch(r"DESC ([A-Z ]+?) (\".*\")", statement, re.DOTALL):
            return self._describe(found[1], parts(found[2]))
        if self.fail_at is not None and len(self.ran) == self.fail_at:
            self.fail_at = None
            raise TransientError("the connection is gone")
        self.ran.append(statement)
        self._run(statement)
        return []

    def _describe(self, kind: str, name: tuple[str, ...]) -> list[dict[str, Any]]:
        assert (kind, name) in self.objects, name
        settings = self.settings.get((kind, name), {})
        if kind == "EXTERNAL VOLUME":
            told = {"STORAGE_LOCATION_1": json.dumps({"STORAGE_AWS_IAM_USER_ARN": "arn:aws:iam::9:user/x", **settings})}
        elif kind == "STORAGE INTEGRATION":
            told = {"STORAGE_AWS_IAM_USER_ARN": "arn:aws:iam::9:user/files", **settings}
        elif kind == "NOTIFICATION INTEGRATION":
            told = {"GCP_PUBSUB_SERVICE_ACCOUNT": "x@y.iam.gserviceaccount.com", **settings}
        else:
            told = {k: v for k, v in settings.items() if k not in (*REST, *LOGIN)}
            for word, names in (("REST_CONFIG", REST), ("REST_AUTHENTICATION", LOGIN)):
                within = [f"{k}={settings[k]}" for k in names if k in settings]
                told |= {word: "{" + ", ".join(within) + "}"} if within else {}
            user = "GLUE_AWS_IAM_USER_ARN" if settings["CATALOG_SOURCE"] == "GLUE" else "API_AWS_IAM_USER_ARN"
            told[user] = "arn:aws:iam::9:user/x"
        return [{"property": k, "property_type": "String", "property_value": v} for k, v in told.items()]

    def _run(self, text: str) -> None:
        if found := re.fullmatch(r"DROP ([A-Z ]+?) (?:IF EXISTS )?(\".*\")", text, re.DOTALL):
            self.objects.pop((found[1], parts(found[2])))
            self.grants = [g for g in self.grants if g["name"] != _granted(parts(found[2]))]
        elif found := re.fullmatch(r"REVOKE (\w+) ON ([A-Z ]+?) (\".*\") FROM ROLE (\".*\")", text, re.DOTALL):
            assert found[1] != "OWNERSHIP", text
            named = (found[1], found[2].replace(" ", "_"), _granted(parts(found[3])))
            self.grants = [g for g in self.grants if (g["privilege"], g["granted_on"], g["name"]) != named]
        elif found := re.fullmatch(r"ALTER TABLE (\".*\") ADD COLUMN IF NOT EXISTS (\w+ [\w(),]+)", text):
            assert ("TABLE", parts(found[1])) in self.objects
        elif found := re.fullmatch(r"ALTER PIPE (\".*\") REFRESH", text):
            assert ("PIPE", parts(found[1])) in self.objects
        elif found := re.fullmatch(
            r"ALTER ([A-Z ]+?) (\"(?:[^\"]|\"\")*\"(?:\.\"[^\"]*\")*) ([A-Z].*)", text, re.DOTALL
        ):
            if found[1] == "ICEBERG TABLE":
                self._plain(statements(text + ";")[0])
            else:
                self._alter(found[1], parts(found[2]), found[3])
        else:
            self._plain(statements(text + ";")[0])

    def _alter(self, kind: str, name: tuple[str, ...], what: str) -> None:
        """The forms that Snowflake's documentation has, and no other."""
        assert (kind, name) in self.objects, name
        if (kind, what) == ("EXTERNAL VOLUME", "SET ALLOW_WRITES = FALSE"):
            self.objects[kind, name]["allow_writes"] = "false"
        elif kind == "STORAGE INTEGRATION":
            assert re.fullmatch(r"SET (STORAGE_AWS_ROLE_ARN|AZURE_TENANT_ID|STORAGE_ALLOWED_LOCATIONS) = .*", what), (
                what
            )
            self.settings[kind, name] |= {k: ",".join(v) for k, v in settings_of(Statement(what, "other")).items()}
        elif kind == "DATABASE" and what == "UPDATE LINKED_CATALOG SET ALLOWED_WRITE_OPERATIONS = NONE":
            self.linked[name]["allowed_write_operations"] = "NONE"
        elif kind == "DATABASE" and what.startswith("UPDATE LINKED_CATALOG ADD ("):
            assert what.endswith(") TO ALLOWED_NAMESPACES"), what
            self.linked[name]["allowed_namespaces"] += [t.text for t in _tokens.tokens(what) if t.kind == "string"]
        elif kind == "STAGE" and what.startswith("SET URL = "):
            self.objects[kind, name]["url"] = next(t.text for t in _tokens.tokens(what) if t.kind == "string")
        else:
            forms = {
                "CATALOG INTEGRATION": r"SET REST_AUTHENTICATION = \((OAUTH_CLIENT_SECRET|BEARER_TOKEN) = ('.*')\)",
                "EXTERNAL VOLUME": r"UPDATE STORAGE_LOCATION = 'lakeward' CREDENTIALS = \((AWS_KEY_ID = .*)\)",
                "STAGE": r"SET CREDENTIALS = \((AWS_KEY_ID = .*)\)",
            }
            found = re.fullmatch(forms.get(kind, "no form"), what)
            assert found, what
            self.secrets[kind, name] = found[0]

    def _plain(self, of: Statement) -> None:
        key = of.kind, of.name
        if of.action in ("create", "replace"):
            assert of.action == "replace" or "IF NOT EXISTS" not in of.text or key not in self.objects, of.text
            self._holders(of)
            self.objects[key] = self._shown(of)
            if "COPY GRANTS" not in of.text:  # grants go with the object
                self.grants = [g for g in self.grants if g["name"] != _granted(of.name)]
        elif of.action == "refresh":
            by_path = self.settings["CATALOG INTEGRATION", (self.objects[key]["catalog_name"],)]
            whole = by_path["CATALOG_SOURCE"] == "OBJECT_STORE" and by_path["TABLE_FORMAT"] == "ICEBERG"
            assert whole == (of.path is not None), f"a path where there is none, or the reverse: {of.text}"
            self.objects[key]["metadata"] = of.path or "by its catalog"
        elif of.action == "grant":
            assert of.kind == "WAREHOUSE" or key in self.objects, f"there is no such object: {of.text}"
            kind = of.kind.rpartition(" ")[2]
            row = {"privilege": of.privilege, "granted_on": kind, "name": _granted(of.name)}
            self.grants.append({**row, "granted_to": "ROLE", "grantee_name": of.role[0], "grant_option": "false"})
        else:
            raise AssertionError(f"no statement of a plan: {of.text}")

    def _holders(self, of: Statement) -> None:
        """What an object stands on has to be there."""
        if of.kind == "ICEBERG TABLE":
            integration = ("CATALOG INTEGRATION", (property_of(of, "CATALOG") or "",))
            assert integration in self.objects, of.text
            source = self.settings[integration]
            by_path = source["CATALOG_SOURCE"] == "OBJECT_STORE" and source["TABLE_FORMAT"] == "ICEBERG"
            assert by_path == (property_of(of, "METADATA_FILE_PATH") is not None), of.text
        if of.kind == "EXTERNAL TABLE":
            location = location_of(of)
            assert location is not None, of.text
            assert ("STAGE", location[0]) in self.objects, of.text
            written = [t.text for t in _tokens.after(_tokens.split(of.text)[0], "LOCATION")]
            at = written.index("REFRESH_ON_CREATE")
            assert "".join(written[:at]) == "@" + ".".join(location[0]) + "/" + location[1], of.text
        if of.kind == "VIEW":
            named = {k[1] for k in self.objects}
            read = [t.text for t in _tokens.tokens(of.text) if t.kind == "identifier"]
            assert tuple(read[3:6]) in named, f"the view reads what is not there: {read[3:6]}"

    def _shown(self, of: Statement) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": of.name[-1], "sql": of.text, "text": of.text}
        if len(of.name) > 1:
            shown["database_name"] = of.name[0]
        if len(of.name) > 2:
            shown["schema_name"] = of.name[1]
        asked = {k: ",".join(v) for k, v in settings_of(of).items()}
        if of.kind in OF_ACCOUNT[1:4]:
            self.settings[of.kind, of.name] = {k: v for k, v in asked.items() if "SECRET" not in k and "TOKEN" not in k}
        if of.kind == "DATABASE" and "LINKED_CATALOG" in of.text:
            self.linked[of.name] = {
                "catalog_integration": asked["CATALOG"],
                "allowed_write_operations": asked.get("ALLOWED_WRITE_OPERATIONS", "ALL"),
                "allowed_namespaces": asked["ALLOWED_NAMESPACES"].split(","),
                "catalog_case_sensitivity": asked["CATALOG_CASE_SENSITIVITY"],
            }
        if of.kind == "EXTERNAL VOLUME":
            shown["allow_writes"] = "false" if "ALLOW_WRITES = FALSE" in of.text else "true"
        if of.kind == "ICEBERG TABLE":
            named = {"catalog_name": "CATALOG", "external_volume_name": "EXTERNAL_VOLUME"}
            named |= {"catalog_table_name": "CATALOG_TABLE_NAME", "catalog_namespace": "CATALOG_NAMESPACE"}
            named |= {"base_location": "BASE_LOCATION", "metadata": "METADATA_FILE_PATH"}
            shown |= {column: property_of(of, name) for column, name in named.items()}
            shown["metadata"] = shown["metadata"] or "by its catalog"
        if of.kind == "EXTERNAL TABLE":
            stage, folder = location_of(of) or ((), "")
            shown["location"] = f"@{'.'.join(stage)}/{folder}"
        if of.kind == "PIPE":
            shown["definition"] = of.text.partition("\n  AS ")[2]
        if of.kind == "STAGE":
            shown["url"] = property_of(of, "URL")
        return shown


def _granted(name: tuple[str, ...]) -> str:
    """As SHOW GRANTS writes a name: in quotes where it needs them."""
    return ".".join(p if re.fullmatch("[A-Z_][A-Z0-9_$]*", p) else '"' + p.replace('"', '""') + '"' for p in name)
