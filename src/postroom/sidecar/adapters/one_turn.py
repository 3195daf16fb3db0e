"""What the adapters share whose programs are started anew for each turn and read the prompt from standard input. Pure.

Not from an argument: one has room for 128 KiB on Linux, may look like an option, and is shown to every process.
"""

from __future__ import annotations

from collections.abc import Mapping

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters.homes import Home, home_of
from postroom.sidecar.adapters.turn_lines import TurnLines
from postroom.sidecar.adapters.turns import Answer, Asked, Event, Setup


class OneTurn(TurnLines):
    """One run of a program for one turn; only SIGINT interrupts it, and it asks nothing.

    Attributes:
        usual: the home where the program's name does not say which it is.
    """

    resident = False
    usual: type[Home] = Home

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.home = home_of(setup, self.usual)
        self._speaking = ""

    def arguments(self) -> tuple[str, ...]:
        """What makes the program print lines of JSON, and go on in its session."""
        raise NotImplementedError

    def files(self) -> Mapping[str, str]:
        """Settings and instructions of the program."""
        return self.home.files()

    def environment(self) -> Mapping[str, str]:
        """What no file sets."""
        return self.home.environment()

    def command(self, prompt: str = "") -> tuple[str, ...]:
        """The template's with `arguments`; a prompt begins its turn."""
        if prompt:
            self.start_turn()
        return (*self.setup.command, *self.arguments())

    def turn(self, prompt: str) -> bytes:
        """The prompt; the input is closed after it."""
        if not self.working:
            self.start_turn()
        said = "" if self.setup.session else self.home.spoken()
        return "\n\n".join(filter(None, (said, prompt))).encode("utf-8", "replace")

    def interrupt(self) -> bytes:
        """Nothing that it would read."""
        return b""

    def answered(self, asked: Asked, answer: Answer) -> bytes:  # noqa: ARG002
        """Nothing that it would read."""
        return b""

    def started(self, session: str, model: str, raw: str) -> Event:
        """The event STARTED, with the session to go on with."""
        resumed = session == self.setup.session
        self.session = session
        fields = {"session": session, "model": model, "version": "", "resumed": resumed}
        return Event(EventKind.STARTED, fields, raw)

    def words(self, kind: EventKind, text: str, raw: str, part: str) -> list[Event]:
        """What the agent says; words of the same `part` go on with those before."""
        if not text:
            return []
        speaking = f"{kind}:{part}"
        more = {"delta": True} if speaking == self._speaking else {}
        self._speaking = speaking
        return [Event(kind, {"text": text, **more}, raw)]

    def silent(self) -> None:
        """Note that something else than words came: what is said next begins anew."""
        self._speaking = ""
