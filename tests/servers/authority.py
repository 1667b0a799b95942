"""Certificate authorities of a test's own: certificates for any name, of any age."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates; `ca` is its own, as a PEM file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = folder / f"{name}-ca.pem"
        now = datetime.datetime.now(datetime.UTC)
        made = self._builder(self._name, self._key.public_key(), now - 400 * DAY, now + 400 * DAY)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.ca.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self, common: str, *, hosts: tuple[str, ...] = (), left: datetime.timedelta = 30 * DAY
    ) -> tuple[Path, Path]:
        """(certificate, key) as PEM files, for DNS names or addresses."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        end = datetime.datetime.now(datetime.UTC) + left
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
        made = self._builder(subject, key.public_key(), end - 300 * DAY, end)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        if hosts:
            made = made.add_extension(x509.SubjectAlternativeName([_general(h) for h in hosts]), critical=False)
        cert_file, key_file = self.folder / f"{common}.pem", self.folder / f"{common}-key.pem"
        cert_file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        return cert_file, key_file

    def _builder(
        self, subject: x509.Name, key: rsa.RSAPublicKey, begin: datetime.datetime, end: datetime.datetime
    ) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        return made.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
