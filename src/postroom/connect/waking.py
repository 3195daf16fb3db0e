"""Ways to wake an idle session, each the client's own: never keystrokes.

A way takes a text and says whether the client took it. A hook that waits in the background comes first; without one,
Claude Code has a socket for messages, and Codex a queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.connect.processes import has_terminal
from postroom.connect.session import Session, Waiter
from postroom.http.unix import MAX_ADDRESS, peer_uid
from postroom.observe import get_logger

log = get_logger(__name__)

TAKEN = 5.0
"""Seconds in which a client takes a text."""

SILENCE = 300.0
"""Seconds without a hook after which a turn of Codex may have been interrupted."""

QUEUE = 20.0
"""Seconds in which `codex queue` ends: it starts a program of some size."""

NUDGE = (
    "Postroom, a program and not the user: mail has come for this session from {names}. It is handed over in this "
    "turn; if it is not there, tool a2a_check_inbox has it."
)
"""For a client that takes its text on a command line, which every user of the machine can read."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to wake a session.

    Attributes:
        how: in words, for receipts.
        carries: the text may be the mail itself; else it is `NUDGE`.
        does: gives a text to the client, and says whether it took it.
    """

    how: str
    does: Callable[[str], Awaitable[bool]]
    carries: bool = True


def way_of(session: Session) -> Way | None:
    """How a session can be woken now, None for not at all."""
    if session.waiter is not None:
        waiter = session.waiter
        how = "asyncRewake" if session.record.client == "claude" else "plugin"
        return Way(how, lambda text: by_waiter(waiter, text))
    if session.record.client == "claude" and (place := inbox_socket(session)):
        return Way("inbox socket", lambda text: by_socket(place, text))
    if session.record.client == "codex" and has_terminal(
        session.record.pid, "codex", session.record.folder
    ):
        # After its terminal was closed the thread stays loaded, and would work where nobody sees it.
        return Way("codex queue", lambda text: by_queue(session, text), carries=False)
    return None


async def by_waiter(waiter: Waiter, text: str) -> bool:
    """A hook in the background ends with the text."""
    if waiter.text.done():
        return False
    waiter.text.set_result(text)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TAKEN):
            return await asyncio.shield(waiter.taken)
    return False


# ── Claude Code ─────────────────────────────────────────────────────────────────────────────────────────────


def claude_says(session: Session) -> dict[str, Any]:
    """What Claude Code says of a session in its own file; empty for nothing.

    The file belongs to the process: `sessions/PID.json` in the folder where its transcripts are.
    """
    home = _home(session.record.transcript, "projects")
    if home is None or not session.record.pid:
        return {}
    try:
        found = json.loads((home / "sessions" / f"{session.record.pid}.json").read_bytes()[:65536])
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict) or found.get("sessionId") != session.record.session:
        return {}
    return found


def is_idle(session: Session) -> bool:
    """Whether the session is idle, although no hook has told so: a turn that was interrupted tells none.

    Claude Code says it itself. Codex keeps what comes in a turn for the end of it, so that a long silence is enough.
    """
    if session.record.client == "codex":
        return time.time() - session.heard_at > SILENCE
    return session.record.client == "claude" and claude_says(session).get("status") == "idle"


def inbox_socket(session: Session) -> str:
    """Path of the socket on which Claude Code takes messages, "" for none that is this user's."""
    path = claude_says(session).get("messagingSocketPath")
    if not isinstance(path, str) or len(os.fsencode(path)) > MAX_ADDRESS:
        return ""
    try:
        found = Path(path).lstat()
    except (OSError, ValueError):
        return ""
    return path if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid() else ""


async def by_socket(path: str, text: str) -> bool:
    """A line into the client's socket; it answers nothing."""
    line = {"type": "user", "message": {"role": "user", "content": text}, "from": "postroom"}
    try:
        async with asyncio.timeout(TAKEN):
            _, writer = await asyncio.open_unix_connection(path)
            try:
                if peer_uid(writer.get_extra_info("socket").fileno()) != os.geteuid():
                    return False
                writer.write(json.dumps(line).encode() + b"\n")
                writer.write_eof()
                await writer.drain()
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        log.info("the client's socket took nothing: %s", error)
        return False
    return True


# ── Codex ───────────────────────────────────────────────────────────────────────────────────────────────────


async def by_queue(session: Session, text: str) -> bool:
    """`codex queue` keeps a prompt for the thread, and begins a turn with it."""
    environment = dict(os.environ)
    if (home := _home(session.record.transcript, "sessions")) is not None:
        environment["CODEX_HOME"] = str(home)
    arguments = ("queue", "--thread", session.record.session, "--message", text)
    try:
        process = await asyncio.create_subprocess_exec(
            _codex(session),
            *arguments,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        log.info("`codex queue` cannot be run: %s", error)
        return False
    try:
        async with asyncio.timeout(QUEUE):
            return await process.wait() == 0
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _codex(session: Session) -> str:
    """The program that serves the session: whoever began this process need not have it on the PATH."""
    with contextlib.suppress(OSError):
        program = Path(f"/proc/{session.record.pid}/exe").readlink()
        if program.name == "codex" and program.is_file():
            return str(program)
    return "codex"


def _home(transcript: str, below: str) -> Path | None:
    """The client's folder, from the path of a transcript in it."""
    parts = Path(transcript).parts
    return Path(*parts[: parts.index(below)]) if below in parts[1:] else None
