"""Which messages the agent has confirmed: an append-only file that survives SIGKILL.

A confirmed message that is delivered again (the acknowledgement was lost) is acknowledged again and not handed
over. One line per message, `<id> <sender>`; a torn last line, left by a kill in the middle of a write, is
skipped. Not synced to disk: after a power cut the worst case is a redelivery that is flagged as one.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

from postroom.errors import InvalidName, StateUnwritable
from postroom.protocol.ids import check_message_id, is_uid

KEPT = 10_000
"""Confirmed messages that are remembered; redelivery ends after minutes, so this is plenty."""


class Journal:
    """The confirmed messages of one worker.

    Args:
        path: the file; made if it is not there.
        kept: messages remembered at most; the file is rewritten when it holds twice as many.

    Raises:
        StateUnwritable: the file cannot be read or written.
    """

    def __init__(self, path: Path, kept: int = KEPT) -> None:
        self._path = path
        self._kept = kept
        self._senders: OrderedDict[str, str] = OrderedDict()
        self._file = -1
        try:
            self._read()
            self._rewrite()
        except OSError as error:
            raise StateUnwritable(f"the journal cannot be opened: {error.strerror}") from error

    def __len__(self) -> int:
        return len(self._senders)

    def sender(self, message_id: str) -> str:
        """Who sent the confirmed message, "" if none with that id was confirmed."""
        return self._senders.get(message_id, "")

    def confirmed(self, message_id: str, sender: str) -> bool:
        """Whether the agent has confirmed this message of `sender`.

        The sender counts, since an id is the sender's word: a stranger who learnt an id must not be taken
        for the one who sent it.
        """
        return self._senders.get(message_id) == sender

    def add(self, message_id: str, sender: str) -> None:
        """Note that the agent has confirmed it; known to the next start from when this returns.

        Raises:
            StateUnwritable: it could not be written.
        """
        self._remember(message_id, sender)
        try:
            _write_all(self._file, _line(message_id, sender))
            self._lines += 1
            if self._lines >= 2 * self._kept:
                self._rewrite()
        except OSError as error:
            raise StateUnwritable(f"the journal cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _remember(self, message_id: str, sender: str) -> None:
        self._senders[message_id] = sender
        self._senders.move_to_end(message_id)
        while len(self._senders) > self._kept:
            self._senders.popitem(last=False)

    def _read(self) -> None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        whole, _, _torn = content.rpartition(b"\n")
        for line in whole.decode("ascii", errors="replace").split("\n"):
            message_id, _, sender = line.partition(" ")
            if _valid(message_id, sender):
                self._remember(message_id, sender)

    def _rewrite(self) -> None:
        """Write what is remembered to a new file and put it in place of the old one."""
        fresh = self._path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(fresh, flags, 0o600)
        try:
            _write_all(file, b"".join(_line(*item) for item in self._senders.items()))
            fresh.replace(self._path)
        except OSError:
            os.close(file)
            raise
        self.close()
        self._file = file  # it goes by the new name now, and is written on at its end
        self._lines = len(self._senders)


def _valid(message_id: str, sender: str) -> bool:
    try:
        check_message_id(message_id)
    except InvalidName:
        return False
    return is_uid(sender)


def _line(message_id: str, sender: str) -> bytes:
    return f"{message_id} {sender}\n".encode("ascii")


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
