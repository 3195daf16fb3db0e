"""The journal of messages that the agent was handed and has confirmed: an append-only file that survives SIGKILL.

A message is noted before it is handed over, so that a second handing is known as one whatever the server remembers.
A confirmed message that is delivered again, because its acknowledgement was lost, is acknowledged again and not handed
over. The last line about a message counts:

    <id> <sender> <losses> [waited]     handed over, lost so many times with its reader; `waited`: set aside
    <id> <sender>                       confirmed

A torn last line, left by a kill during a write, is skipped. Nothing syncs the file to disk: after a power cut, at
worst the server alone flags a redelivery.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from postroom.errors import InvalidName, StateUnwritable
from postroom.protocol.ids import check_message_id, is_uid

KEPT = 10_000
"""Confirmed messages that are remembered, and as many unconfirmed ones; redelivery ends after minutes."""

_LINE = re.compile(
    r"(?P<id>[!-~]+) (?P<sender>[0-9a-f]+)(?: (?P<losses>[0-9]{1,9})(?P<waited> waited)?)?"
)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Note:
    """A message that was handed over and is not confirmed.

    Attributes:
        losses: runs that ended while they held it; the present run counts until it is known to have survived.
        set_aside: it holds back no further messages, and its sender knows.
    """

    losses: int = 0
    set_aside: bool = False


class Journal:
    """The messages that the agent of one worker was handed.

    Args:
        path: made if it does not exist.
        kept: messages that are remembered; the file is rewritten when it holds twice as many.

    Raises:
        StateUnwritable: the file cannot be read or written.
    """

    def __init__(self, path: Path, kept: int = KEPT) -> None:
        self._path = path
        self._kept = kept
        self._senders: OrderedDict[str, str] = OrderedDict()
        self._notes: OrderedDict[tuple[str, str], Note] = OrderedDict()
        self._file = -1
        self._torn = False
        try:
            self._read()
            self._rewrite()
        except OSError as error:
            raise StateUnwritable(f"the journal cannot be opened: {error.strerror}") from error

    def __len__(self) -> int:
        return len(self._senders)

    def sender(self, message_id: str) -> str:
        """The sender of a confirmed message, "" if no message with that id was confirmed."""
        return self._senders.get(message_id, "")

    def confirmed(self, message_id: str, sender: str) -> bool:
        """Whether the agent has confirmed this message of `sender`.

        The sender counts, too: an id is the sender's word, and a stranger may have learnt it.
        """
        return self._senders.get(message_id) == sender

    def note(self, message_id: str, sender: str) -> Note | None:
        """The note of a message that was handed over and not confirmed, if there is one."""
        return self._notes.get((message_id, sender))

    def keep(self, message_id: str, sender: str, note: Note) -> None:
        """Note that the agent holds a message; the next run of the sidecar knows it once this has returned.

        Raises:
            StateUnwritable: nothing is noted.
        """
        self._put(message_id, sender, note)

    def add(self, message_id: str, sender: str) -> None:
        """Note that the agent has confirmed a message. Returns and raises as `keep`."""
        self._put(message_id, sender)

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _put(self, message_id: str, sender: str, note: Note | None = None) -> None:
        line = _line(message_id, sender, note)
        try:
            # A full disk may have cut the line before: begin a new one.
            _write_all(self._file, b"\n" + line if self._torn else line)
        except OSError as error:
            self._torn = True
            raise StateUnwritable(f"the journal cannot be written: {error.strerror}") from error
        self._torn = False
        self._lines += 1
        self._remember(message_id, sender, note)
        if self._lines >= 2 * self._kept + len(self._notes):
            with suppress(OSError):  # the next line tries again
                self._rewrite()

    def _remember(self, message_id: str, sender: str, note: Note | None) -> None:
        if note is None:
            self._notes.pop((message_id, sender), None)
            _latest(self._senders, message_id, sender, self._kept)
        else:
            _latest(self._notes, (message_id, sender), note, self._kept)

    def _read(self) -> None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        whole, _, _torn = content.rpartition(b"\n")
        for line in whole.decode("ascii", errors="replace").split("\n"):
            found = _LINE.fullmatch(line)
            if found and _valid(found["id"], found["sender"]):
                losses = found["losses"]
                note = Note(int(losses), found["waited"] is not None) if losses else None
                self._remember(found["id"], found["sender"], note)

    def _rewrite(self) -> None:
        """Write the remembered messages to a new file, which replaces the old one."""
        fresh = self._path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(fresh, flags, 0o600)
        try:
            lines = [_line(*item) for item in self._senders.items()]
            lines += [_line(*key, note) for key, note in self._notes.items()]
            _write_all(file, b"".join(lines))
            fresh.replace(self._path)
        except OSError:
            os.close(file)
            raise
        self.close()
        self._file = file  # later lines go to its end
        self._lines = len(lines)


def _valid(message_id: str, sender: str) -> bool:
    try:
        check_message_id(message_id)
    except InvalidName:
        return False
    return is_uid(sender)


def _line(message_id: str, sender: str, note: Note | None = None) -> bytes:
    state = f" {note.losses}{' waited' if note.set_aside else ''}" if note else ""
    return f"{message_id} {sender}{state}\n".encode("ascii")


def _latest(known: OrderedDict[K, V], key: K, value: V, kept: int) -> None:
    known[key] = value
    known.move_to_end(key)
    while len(known) > kept:
        known.popitem(last=False)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
