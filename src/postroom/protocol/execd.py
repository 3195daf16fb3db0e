"""The agreement with execd, the daemon in each OpenSandbox container."""

from __future__ import annotations

import re

PORT = 44772
"""Loopback port of execd in the container."""

EGRESS_PORT = 18080
"""Port of the container's egress control."""

TOKEN_HEADER = "X-EXECD-ACCESS-TOKEN"

SIGNALLED = 128
_SIGNALS = {"hangup": 1, "interrupt": 2, "killed": 9, "terminated": 15}


def exit_status(code: int | None, said: str) -> int:
    """An exit status as shells count it. execd gives -1 for a program that a signal has ended, and names the signal
    in words.

    Args:
        code: execd's number, None if it gives none.
        said: execd's words, such as `signal: killed`.
    """
    if code is not None and code >= 0:
        return code
    named = re.fullmatch(r"signal: ([a-z]+).*", said)
    return SIGNALLED + _SIGNALS.get(named[1] if named else "", 9)


def mode_number(mode: int) -> int:
    """Permission bits in execd's form: a decimal number that looks octal (0o644 is 644)."""
    return int(f"{mode:o}")


__all__ = ["EGRESS_PORT", "PORT", "SIGNALLED", "TOKEN_HEADER", "exit_status", "mode_number"]
