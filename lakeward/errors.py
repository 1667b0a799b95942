"""Every failure Lakeward raises on purpose: what happened, the facts around it, and how to mend it.

One hierarchy, so that a caller can decide by type alone: `TransientError` may be tried again as it is,
`TerminalError` needs a person, `CommitUnknownError` means that a write may or may not be durable and must be
looked up before anything else is done. Errors of libraries are translated where they enter.
"""

from __future__ import annotations

from collections.abc import Iterator


class LakewardError(Exception):
    """A failure with its facts and a remedy.

    `message` says what happened and where; `hint` says what to do about it; `facts` are named values (table,
    position, file …) that tests and logs read. None of them may hold a secret or a masked value.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None, **facts: object) -> None:
        self.message = message
        self.hint = hint
        self.facts = facts
        super().__init__(message)

    def __str__(self) -> str:
        facts = "".join(f"\n  {name.replace('_', ' ')}: {value}" for name, value in self.facts.items())
        hint = f"\n  to mend it: {self.hint}" if self.hint else ""
        return f"{self.message}{facts}{hint}"


class TransientError(LakewardError):
    """The same call may succeed if it is made again (a lost connection, a time-out)."""


class ConnectionLostError(TransientError):
    """The source went away, is full, or fell silent: the same call on a new connection may succeed."""


class TerminalError(LakewardError):
    """The same call fails again until somebody changes something."""


class CommitUnknownError(LakewardError):
    """A write was sent and its outcome is not known; the next run looks it up before it writes."""


class UsageError(TerminalError):
    """A wrong command line or configuration (exit code 2)."""

    exit_code = 2


class ConfigError(UsageError):
    """`lakeward.toml` says something that cannot be meant."""


class FailClosedError(TerminalError):
    """An event that Lakeward cannot read. It is never skipped: the run stops at its position."""


class WrongServerError(TerminalError):
    """The source is not the server, or no longer holds the log, that the checkpoint speaks of."""


class GateStoppedError(TerminalError):
    """A gate of severity `stop`, or a gate above its threshold, let nothing of the batch pass (exit code 3)."""

    exit_code = 3


class LockedError(TerminalError):
    """Another run holds the lake."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised from, each once: libraries raise errors from themselves."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__
