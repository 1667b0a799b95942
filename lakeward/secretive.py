"""Tells secrets from other settings by what they are called, and finds them in addresses.

Promise: what stands for a secret in a configuration file is refused there, and is in no message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

# But `client.credentials-provider` is a class, and `adls.auth.shared-key.account.name` a name.
_NAMES = re.compile(
    r"password|passwd|passphrase|secret|token|credential(?!s-provider$)|authorization|cookie|connection[._-]?string|account[._-]key"
    r"|(^|[._-])(pwd|sas)([._-]|$)|(^|[._-])(api)?key$",
    re.IGNORECASE,
)
_SWITCH = re.compile(r"true|false", re.IGNORECASE)  # token-refresh-enabled
_PARAMETER = re.compile(r"[?&;,(]\s*([\w.-]+)\s*=")  # ?password=…, SQL Server's ;password=…, MySQL's (password=…)
_ORACLE = re.compile(r"jdbc:oracle:\w+:[^/@]+/[^@]+@")  # jdbc:oracle:thin:user/password@…
_USERINFO = re.compile(r"(?<=//)[^/?#]*@")


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret."""
    return _NAMES.search(name) is not None


def is_literal_secret(name: str, value: str, references: tuple[str, ...]) -> bool:
    """Whether the setting holds a secret itself, and not one of the `references` to where it is."""
    return is_secret(name) and not value.startswith(references) and not _SWITCH.fullmatch(value)


def secret_in(address: str) -> bool:
    """Whether a URL, or a JDBC driver's, holds a password or another secret."""
    try:
        parts = urlsplit(address.removeprefix("jdbc:"))
        password = parts.password is not None
    except ValueError:  # no URL at all
        password = False
    return password or bool(_ORACLE.match(address)) or any(map(is_secret, _PARAMETER.findall(address)))


def shown(address: str) -> str:
    """The address as a message may show it: without a user, and without parameters."""
    return re.split(r"[?;]", _USERINFO.sub("", address), maxsplit=1)[0]


def without(text: str, secrets: Iterable[str]) -> str:
    """`text` with each of `secrets` replaced."""
    for secret in sorted({s for s in secrets if s}, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text
