"""Certificates are really verified: by whom, for which name, until when; and the client's own is shown."""

from __future__ import annotations

import contextlib
import datetime
import time

import pytest
from servers.authority import Authority

from bronze.binlog.wire import Dump
from bronze.source.connection import connect, settings
from bronze.source.server import binary_logs
from lakeward.config import parse
from lakeward.errors import TerminalError

FLAVOURS = ["mysql", "mariadb"]
RELOAD = {"mysql": "ALTER INSTANCE RELOAD TLS", "mariadb": "FLUSH SSL"}
VERIFIED = ("verify_ca", "verify_identity")


class Certified:
    """A server whose certificate can be changed while it runs, and a user without a password."""

    def __init__(self, own_server, flavour, folder) -> None:
        self.authority = Authority(folder, "right")
        self.other = Authority(folder, "other")
        self.cert, self.key = self.authority.issue("server", hosts=("127.0.0.1",))
        files = {"ssl-ca": str(self.authority.ca), "ssl-cert": str(self.cert), "ssl-key": str(self.key)}
        self.server = own_server(flavour, settings=files)
        self.user("CREATE USER u@'127.0.0.1' IDENTIFIED BY 'pw'")
        self.user("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO u@'127.0.0.1'")

    def user(self, sql) -> None:
        with self.server.admin() as connection, connection.cursor() as cursor:
            cursor.execute(sql)

    def shows(self, **certificate) -> None:
        self.authority.issue("server", **certificate)
        self.user(RELOAD[self.server.flavour])

    def source(self, mode, *, ca=None, cert=None, key=None):
        named = {"ca": ca, "cert": cert, "key": key}
        tls = {"mode": mode, **{k: str(v) for k, v in named.items() if v}}
        return parse({"source": {"url": f"mysql://u@127.0.0.1:{self.server.port}", "tls": tls}}).source

    def reads(self, mode, **files):
        """The cipher of a connection, over which a dump was opened too."""
        source = self.source(mode, **files)
        with contextlib.closing(connect(source, "pw")) as connection, connection.cursor() as cursor:
            file, size = binary_logs(connection)[-1]
            opened = Dump(
                settings(source, "pw"), server_id=4713, file=file, pos=size, flavour=self.server.flavour,
                blocking=False, heartbeat_s=10.0,
            )  # fmt: skip
            with contextlib.closing(opened):
                assert list(opened)
            cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
            return cursor.fetchone()[1]


@pytest.fixture(params=FLAVOURS)
def certified(request, own_server, tmp_path):
    return Certified(own_server, request.param, tmp_path)


def refused(certified, hint, mode, **files) -> None:
    with pytest.raises(TerminalError, match="no TLS connection") as caught:
        connect(certified.source(mode, **files), "pw")
    assert hint in str(caught.value.hint)
    assert "pw" not in str(caught.value).replace("127.0.0.1", "")


def test_the_authority_the_name_and_the_date_are_verified_by_the_modes_that_say_so(certified) -> None:
    right, other = certified.authority.ca, certified.other.ca
    for mode in VERIFIED:
        assert certified.reads(mode, ca=right)
        refused(certified, "name the file of the CA", mode, ca=other)
    assert certified.reads("required", ca=other)  # it promises a cipher and no more
    assert not certified.reads("disabled")

    certified.shows(hosts=("db.example.com",))
    assert certified.reads("verify_ca", ca=right)
    refused(certified, "the name that stands in the certificate", "verify_identity", ca=right)

    # MySQL takes no certificate that has expired, and goes on with one that does.
    certified.shows(hosts=("127.0.0.1",), left=datetime.timedelta(seconds=2))
    time.sleep(3)
    for mode in VERIFIED:
        refused(certified, "renew", mode, ca=right)
    assert certified.reads("required")


def test_a_user_who_needs_a_certificate_of_his_own_shows_it(certified) -> None:
    certified.user("ALTER USER u@'127.0.0.1' REQUIRE X509")
    cert, key = certified.authority.issue("client")
    ca = certified.authority.ca
    for mode in ("preferred", "required", *VERIFIED):
        assert certified.reads(mode, ca=ca, cert=cert, key=key)
    for mode in ("required", *VERIFIED):
        with pytest.raises(TerminalError, match="refused the user 'u'"):
            connect(certified.source(mode, ca=ca), "pw")
    stranger, strangers_key = certified.other.issue("stranger")
    with pytest.raises(TerminalError, match="no TLS connection") as caught:
        connect(certified.source("required", cert=stranger, key=strangers_key), "pw")
    assert "trusts the authority" in str(caught.value.hint)


@pytest.mark.parametrize("mode", ["disabled", "required"])
def test_a_first_login_by_caching_sha2_password_works_with_tls_and_without(mode, own_server, tmp_path) -> None:
    certified = Certified(own_server, "mysql", tmp_path)
    for _ in range(2):
        certified.user("FLUSH PRIVILEGES")  # forgets who has logged in, so the password itself has to be sent
        assert bool(certified.reads(mode)) == (mode == "required")
    assert bool(certified.reads(mode)) == (mode == "required")  # by the server's cache
    with certified.server.admin() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT plugin FROM mysql.user WHERE user = 'u'")
        assert cursor.fetchone()[0] == "caching_sha2_password"
