"""PINs of people: asked for with every decision about an approval, once a person has set one.

A PIN keeps a program that has got hold of a person's API key from deciding in that person's name. The file holds what
scrypt (RFC 7914) makes of it, with a salt, and how often somebody was wrong: a try counts on disk before it is looked
at, so that neither a kill nor a restart gives it back.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from postroom.errors import (
    EnvironmentFault,
    InvalidInput,
    PinPaused,
    PinRequired,
    PinWrong,
    StateUnwritable,
)
from postroom.identity import privatefile
from postroom.protocol import shapes
from postroom.protocol.limits import MAX_PIN, MIN_PIN, PIN_TRIES
from postroom_a2a.times import format_time

FIRST_PAUSE, LONGEST_PAUSE = 30.0, 3600.0
"""Seconds without tries after too many wrong ones; each further wrong one doubles them."""

_COST = {"n": 2**15, "r": 8, "p": 1}
"""Work of scrypt: 32 MiB and about a tenth of a second for each try."""

_MEMORY = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Pin:
    """What is kept of a PIN.

    Attributes:
        salt, hash: hexadecimal.
        wrong: wrong tries since the last right one.
        until: no try is taken before; seconds since the epoch.
    """

    salt: str
    hash: str
    wrong: int = 0
    until: float = 0.0

    @classmethod
    def of(cls, pin: str) -> Pin:
        """A new one; takes a tenth of a second."""
        salt = secrets.token_bytes(16)
        return cls(salt.hex(), _hash(pin, salt))

    def fits(self, pin: str) -> bool:
        """Whether it is `pin`; takes a tenth of a second."""
        return hmac.compare_digest(_hash(pin, bytes.fromhex(self.salt)), self.hash)

    def tried(self, now: float) -> Pin:
        """After one more try, as long as it is not known to be right."""
        wrong = self.wrong + 1
        over = wrong - PIN_TRIES
        pause = min(FIRST_PAUSE * 2 ** min(over, 20), LONGEST_PAUSE) if over >= 0 else 0.0
        return replace(self, wrong=wrong, until=now + pause if pause else 0.0)


class Pins:
    """The PINs of one organisation's people, in one file of mode 0600, which is read at each use."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    def status(self, uid: str) -> shapes.Pin:
        """Whether that person has a PIN; shape of the API."""
        pin = self._read().get(uid)
        wait = self._wait(pin) if pin is not None else 0.0
        return {
            "set": pin is not None,
            "tries_left": max(0, PIN_TRIES - pin.wrong) if pin is not None else PIN_TRIES,
            "paused_until": format_time(self._clock() + wait) if wait else None,
        }

    async def check(self, uid: str, pin: str) -> None:
        """Return if that person has no PIN, or this one.

        Raises:
            PinRequired: one is set, and none was given.
            PinWrong: it is another one.
            PinPaused: there were too many wrong ones; this try was not looked at.
            StateUnwritable: the try could not be counted, so it was not looked at.
        """
        async with self._one_at_a_time:
            await self._check(uid, pin)

    async def change(self, uid: str, new: str, old: str) -> None:
        """Set, replace or, with "", remove the PIN of a person; `old` is the one before, "" for none.

        Raises:
            InvalidInput: the new one is too short, too long or not printable.
            PinRequired, PinWrong, PinPaused, StateUnwritable: as `check`, about the old one.
        """
        if new and not (MIN_PIN <= len(new) <= MAX_PIN and new.isprintable()):
            raise InvalidInput(f"a PIN has {MIN_PIN} to {MAX_PIN} printable characters")
        async with self._one_at_a_time:
            await self._check(uid, old)
            pins = self._read()
            pins.pop(uid, None)
            if new:
                pins[uid] = await asyncio.to_thread(Pin.of, new)
            self._write(pins)

    async def _check(self, uid: str, given: str) -> None:
        pin = self._read().get(uid)
        if pin is None:
            return
        if not given:
            raise PinRequired(
                "your PIN is needed for this",
                remedy="the command asks for it in a terminal, or: --pin-file FILE",
            )
        if (wait := self._wait(pin)) > 0:
            raise PinPaused(
                f"too many wrong PINs: the next try is taken in {wait:.0f} s",
                remedy="wait that long",
            )
        self._keep(uid, pin.tried(self._clock()))
        if not await asyncio.to_thread(pin.fits, given):
            left = max(0, PIN_TRIES - pin.wrong - 1)
            after = f"{left} more tries" if left else "now a pause"
            raise PinWrong(f"that is not your PIN: {after}")
        self._keep(uid, replace(pin, wrong=0, until=0.0))

    def _wait(self, pin: Pin) -> float:
        """Seconds until a try is taken; a clock that was set back makes it no longer than the longest pause."""
        return max(0.0, min(pin.until - self._clock(), LONGEST_PAUSE))

    def _keep(self, uid: str, pin: Pin) -> None:
        self._write(self._read() | {uid: pin})

    def _read(self) -> dict[str, Pin]:
        try:
            document = json.loads(self._path.read_bytes())
            return {uid: Pin(**fields) for uid, fields in document.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            # Without a PIN everything would be permitted.
            raise EnvironmentFault(
                f"the PINs in {self._path} cannot be read: {error}",
                remedy="restore the file, or delete it to have no PIN",
            ) from error

    def _write(self, pins: Mapping[str, Pin]) -> None:
        content = json.dumps({uid: asdict(pin) for uid, pin in pins.items()}).encode()
        try:
            privatefile.prepare(self._path.parent)
            privatefile.replace(self._path, content)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise StateUnwritable(f"cannot write {self._path}: {why}") from error


def _hash(pin: str, salt: bytes) -> str:
    given = pin.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(given, salt=salt, **_COST, maxmem=_MEMORY, dklen=32).hex()
