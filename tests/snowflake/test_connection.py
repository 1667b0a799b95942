"""What the connector's errors become, and that nothing secret or masked is in them."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from snowflake.connector import errors

from lakeward.config import parse
from lakeward.errors import ConfigError, TerminalError, TransientError
from snowflake.lakehouse import connection


@pytest.mark.parametrize(
    ("error", "kind", "hint"),
    [
        (errors.DatabaseError("bad password hunter2", errno=390100, sqlstate="08001"), TerminalError, "mend user"),
        (errors.DatabaseError("role X of hunter2", errno=390189), TerminalError, "grant the role"),
        (errors.ProgrammingError("no access: hunter2", errno=3001), TerminalError, "CREATE SCHEMA"),
        (errors.ProgrammingError("'hunter2' is not recognized", errno=100038), TerminalError, "history"),
        (errors.OperationalError("lost hunter2", errno=250003), TransientError, "again"),
        (errors.OperationalError("hunter2", errno=290503), TransientError, "again"),
    ],
)
def test_an_error_says_what_to_mend_and_repeats_no_value(error, kind, hint):
    made = connection.translated(error, 'INSERT INTO "S"."T" SELECT \'hunter2\'')
    assert type(made) is kind
    assert hint in str(made)
    assert "hunter2" not in str(made)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "account is not set"),
        ({"account": "a"}, "user is not set"),
        ({"account": "a", "user": "u"}, "neither private_key nor oauth_token nor password"),
        ({"account": "a", "user": "u", "private_key": "file:key"}, "not a PEM"),
    ],
)
def test_what_a_session_lacks_is_named(tmp_path, settings, message):
    (tmp_path / "key").write_text("no key at all")
    with pytest.raises(ConfigError, match=message):
        connection.connect(parse({"snowflake": settings}, folder=tmp_path).snowflake)


def test_an_encrypted_key_needs_its_phrase(tmp_path):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "key").write_bytes(key.private_bytes(pem, pkcs8, serialization.BestAvailableEncryption(b"phrase")))
    (tmp_path / "phrase").write_text("phrase\n")
    doc = {"account": "a", "user": "u", "private_key": "file:key"}
    with pytest.raises(ConfigError, match="not a PEM"):
        connection._credentials(parse({"snowflake": doc}, folder=tmp_path).snowflake)
    doc["private_key_passphrase"] = "file:phrase"
    made = connection._credentials(parse({"snowflake": doc}, folder=tmp_path).snowflake)
    opened = serialization.load_der_private_key(made["private_key"], None)
    assert isinstance(opened, rsa.RSAPrivateKey)
    assert opened.private_numbers() == key.private_numbers()


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"password": "env:SECRET"}, {"password": "hunter2"}),
        ({"oauth_token": "env:SECRET", "password": "env:OTHER"}, {"authenticator": "oauth", "token": "hunter2"}),
        ({"private_key": "file:key", "oauth_token": "env:OTHER"}, {"private_key"}),
    ],
)
def test_a_login_sends_one_secret_and_commits_each_statement_by_itself(tmp_path, monkeypatch, given, sent):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "key").write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    monkeypatch.setenv("SECRET", "hunter2")
    made: dict[str, object] = {}
    monkeypatch.setattr(connection, "Connection", lambda **settings: made.update(settings))
    config = parse({"snowflake": {"account": "a", "user": "u", **given}}, folder=tmp_path).snowflake
    connection.connect(config, purpose="apply")
    secrets = {"password", "authenticator", "token", "private_key"}
    held = {name: value for name, value in made.items() if name in secrets}
    assert set(held) == sent if isinstance(sent, set) else held == sent
    assert made["autocommit"] is True
    parameters = made["session_parameters"]
    assert isinstance(parameters, dict)
    assert parameters["QUERY_TAG"] == "lakeward snowflake apply"
    assert "hunter2" not in repr(config)
