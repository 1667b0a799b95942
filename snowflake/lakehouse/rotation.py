"""Which secrets Snowflake was last given: a mark of each in `_lakeward/snowflake.json`, so that a new one is seen.

A mark is scrypt's of the secret with a salt of this lake's own. It says whether a secret is the same, and nothing else:
whoever reads the lake has neither the secret nor a quick way to try guesses.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from lakeward.config import Secret, Snowflake
from lakeward.errors import ConfigError

SECRETS = ("storage_key_id", "storage_secret_key", "rest_oauth_client_secret", "rest_bearer_token")


def rotated(document: Mapping[str, Any], config: Snowflake) -> set[str]:
    """The settings whose secrets are not those that Snowflake was given, or of which that is not known."""
    known = document.get("secrets") or {}
    marks = _marks(str(known.get("salt", "")), config)
    return {name for name, mark in marks.items() if mark != known.get("marks", {}).get(name)}


def given(document: Mapping[str, Any], config: Snowflake) -> dict[str, Any]:
    """The document, saying that Snowflake has the secrets of the configuration."""
    salt = str((document.get("secrets") or {}).get("salt") or os.urandom(16).hex())
    marks = _marks(salt, config)
    return {**document, "secrets": {"salt": salt, "marks": marks}} if marks else dict(document)


def _marks(salt: str, config: Snowflake) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in SECRETS:
        where: Secret | None = getattr(config, name)
        if where is None:
            continue
        try:
            text = where.reveal().encode()
        except ConfigError:
            continue  # not to be had here, so nothing can be said of it; what needs it says so
        found[name] = hashlib.scrypt(text, salt=bytes.fromhex(salt), n=2**14, r=8, p=1).hex()
    return found
