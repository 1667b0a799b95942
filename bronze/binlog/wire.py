"""A server's binlog as raw events: the only module that speaks replication, and the only one with mysql-replication.

mysql-replication opens the connection, authenticates, agrees on checksums and heartbeats, and asks for the dump. From
there on its packets are read here (see `packets`), and none of its event classes: it drops events it does not know,
reconnects without bound, and moves its position inside transactions. A lost connection is a TransientError; to open a
new Dump at the last boundary is the caller's business.

Source: MySQL manual, "COM_BINLOG_DUMP"; pymysqlreplication/binlogstream.py, __connect_to_stream.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import pymysql
from pymysql.constants import COMMAND
from pymysql.err import raise_mysql_exception
from pymysqlreplication import BinLogStreamReader

from bronze.binlog.blocks import BLOCK_BYTES, Block
from bronze.binlog.frame import WRAP
from bronze.binlog.gtid import Flavour
from bronze.binlog.packets import Packets
from bronze.source.connection import open_connection, translated
from lakeward.errors import ConnectionLostError, LakewardError, TerminalError, TransientError, WrongServerError

_ER_MASTER_FATAL_ERROR_READING_BINLOG: Final = 1236
SILENT_S = 90.0  # without a byte of a dump: the server, or the way to it, is gone
_SEVERAL_HEARTBEATS: Final = 3
_DUMP_FLAGS_AT: Final = 9  # in COM_BINLOG_DUMP: length and number of the packet, command, position, flags
_SEND_ANNOTATE_ROWS: Final = 0x02
_PATIENCE_MS: Final = 10  # for a block to become full


class Dump:
    """The raw events of a server's binlog from `pos` of `file` on, each its header, body and checksum.

    `settings` are those of `bronze.source.connection`. With `blocking` it goes on for ever, and the server
    sends a heartbeat after each `heartbeat_s` of silence; without, it ends with the log. The first event is always an
    artificial ROTATE that names the file and the position. `pos` has to be a boundary (see `transactions.read`).

    Raises WrongServerError when the server no longer has the file, or never wrote so far; TransientError when the
    connection is lost or silent; TerminalError for what only a person can mend.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        server_id: int,
        file: str,
        pos: int,
        flavour: Flavour,
        blocking: bool,
        heartbeat_s: float,
    ) -> None:
        if not 4 <= pos < WRAP:
            raise TerminalError("a binlog dump can begin at positions from 4 to 4 GiB only", file=file, position=pos)
        self.file = file
        self.pos = pos
        self._connection: Any = None
        self._server = f"{settings['host']}:{settings['port']}"
        silence_s = max(_SEVERAL_HEARTBEATS * heartbeat_s, SILENT_S)

        def connect(**_: Any) -> pymysql.Connection:
            self._connection = open_connection(dict(settings), proven=True, read_timeout_s=silence_s)
            with self._connection.cursor() as cursor:
                # mysql-replication says so only where checksums are on now; files from before may have them.
                cursor.execute("SET @master_binlog_checksum = 'CRC32'")
            if flavour == "mariadb":
                _ask_for_annotations(self._connection)
            return self._connection

        # Its option for MariaDB asks for the start of the log whatever it is told, so it is not used: what a MariaDB
        # server needs to hear (its slave capability) is said to every server.
        reader = BinLogStreamReader(
            {},
            server_id,
            resume_stream=True,  # begin at log_pos, not at the file's start
            blocking=blocking,
            log_file=file,
            log_pos=pos,
            slave_heartbeat=heartbeat_s if blocking else None,
            pymysql_wrapper=connect,
            enable_logging=False,
        )
        try:
            reader._BinLogStreamReader__connect_to_stream()
        except (pymysql.Error, OSError) as error:
            self.close()
            raise self._translated(error) from error
        except LakewardError:
            self.close()
            raise

    def __iter__(self) -> Iterator[memoryview]:
        for block in self.blocks():
            yield from block

    def blocks(self, size: int = BLOCK_BYTES) -> Iterator[Block]:
        """The same events, as many at once as have arrived, in blocks of about `size` bytes."""
        connection = self._connection
        connection._sock.settimeout(connection._read_timeout)
        ready = partial(_ready, connection._sock)
        packets = iter(Packets(connection._rfile.readinto1, ready, connection._next_seq_id, size))
        while True:
            try:
                packet = next(packets)
                if isinstance(packet, bytes) and packet[:1] == b"\xff":
                    raise_mysql_exception(packet)
            except (pymysql.Error, OSError) as error:
                raise self._translated(error) from error
            except EOFError as error:
                raise ConnectionLostError(
                    "the server closed the connection while its binlog was read", hint="run again", file=self.file
                ) from error
            if isinstance(packet, Block):
                yield packet
            elif packet[:1] == b"\xfe" and len(packet) < 9:
                return
            elif packet[:1] == b"\0":
                yield Block.of([packet[1:]])
            else:
                raise TransientError(
                    f"the server sent a packet that is no binlog event (it begins with {packet[:1]!r})",
                    hint="run again",
                    file=self.file,
                )

    def close(self) -> None:
        """End the dump. The server notices when it next sends."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection._force_close()

    def _translated(self, error: Exception) -> LakewardError:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = str(error.args[1]) if len(error.args) > 1 else str(error)
        if code == _ER_MASTER_FATAL_ERROR_READING_BINLOG:
            return dump_error(text, self.file, self.pos)
        if isinstance(error, TimeoutError):
            return ConnectionLostError(
                f"{self._server} fell silent while its binlog was read",
                hint="see whether the source runs and can be reached, then run the same command again",
                file=self.file,
            )
        return translated(error, f"reading its binlog from {self.file} on")


def _ready(sock: socket.socket) -> bool:
    """Whether something more comes soon."""
    if isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(_PATIENCE_MS))


def _ask_for_annotations(connection: Any) -> None:
    """Let the request for the dump ask for every event of the log.

    MariaDB leaves ANNOTATE_ROWS out by default. Since its later events bear no position, theirs could then not be
    counted.
    """
    write = connection._write_bytes

    def write_with_flag(data: bytes) -> None:
        if len(data) > _DUMP_FLAGS_AT and data[4] == COMMAND.COM_BINLOG_DUMP:
            flags = data[_DUMP_FLAGS_AT] | _SEND_ANNOTATE_ROWS
            data = data[:_DUMP_FLAGS_AT] + bytes((flags,)) + data[_DUMP_FLAGS_AT + 1 :]
        write(data)

    connection._write_bytes = write_with_flag


def dump_error(text: str, file: str, pos: int) -> LakewardError:
    """What the server's error 1236 says: one number for all that can be wrong (MySQL, sql/rpl_source.cc)."""
    lower = text.lower()
    facts: dict[str, Any] = {"file": file, "position": pos, "the server says": text}
    facts = {name.replace(" ", "_"): value for name, value in facts.items()}
    if "could not find first log file" in lower or "could not open log file" in lower or "purged" in lower:
        return WrongServerError(
            f"the server no longer has the binlog file {file}, so the changes from there on are lost to Lakeward",
            hint="`lakeward resnapshot` of all tables reads them anew; keep the binlog longer "
            "(binlog_expire_logs_seconds, on MariaDB expire_logs_days)",
            **facts,
        )
    if "position > file size" in lower or "impossible position" in lower:
        return WrongServerError(
            f"the server's binlog file {file} ends before position {pos}: it is another file of that name",
            hint="look whether the server was reset, restored or failed over; then `lakeward resnapshot` of all tables",
            **facts,
        )
    if "same server_uuid/server_id" in lower or "same server_id" in lower or "same server_uuid" in lower:
        return TerminalError(
            "another replica has connected to the server with the same server_id",
            hint="give [source] server_id a number that no other replica has",
            **facts,
        )
    if "max_allowed_packet" in lower:
        return TerminalError(
            "an event of the binlog is larger than the server may send",
            hint="SET GLOBAL max_allowed_packet = 1073741824",
            **facts,
        )
    if "checksum" in lower and "configured" in lower:
        return TransientError("the server's binlog_checksum was changed", hint="run again", **facts)
    return TerminalError(
        "the server cannot read its binlog",
        hint="mend what it says; if that binlog is damaged, `lakeward resnapshot` of all tables",
        **facts,
    )
