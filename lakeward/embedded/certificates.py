"""Certificates of an embedded server: an authority of its own, and a certificate for 127.0.0.1 signed by it.

Promise: every TLS mode up to `verify_identity` can be tried against the embedded server, with `ca.pem`. They are made
once, with the data folder. Without them MariaDB 11.4 makes a 4096-bit key at every start, which takes one to eight
seconds of its two-second start.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

_DAYS = 3650
CA, CERTIFICATE, KEY = "ca.pem", "server-cert.pem", "server-key.pem"


def make_certificates(folder: Path) -> None:
    """Writes ca.pem, server-cert.pem and server-key.pem (0600) to `folder`, which is made. The CA's key is not kept."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca_key, server_key = _key(), _key()
    authority = _name("Lakeward embedded server CA")
    constraint = x509.BasicConstraints(ca=True, path_length=0)
    ca = _builder(authority, authority, ca_key).add_extension(constraint, critical=True).sign(ca_key, hashes.SHA256())
    addresses: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.DNSName("localhost"),
    ]
    server = (
        _builder(_name("localhost"), authority, server_key)
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    (folder / CA).write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    (folder / CERTIFICATE).write_bytes(server.public_bytes(serialization.Encoding.PEM))
    (folder / KEY).touch(mode=0o600)
    (folder / KEY).write_bytes(
        server_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    # A day back, for a client whose clock is behind.
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=_DAYS))
    )
