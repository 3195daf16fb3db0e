"""A real program driven by its adapter: what the sidecar does with one, as far as a test of the adapter needs it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters import End
from postroom.sidecar.adapters.registry import turn_adapter
from postroom.sidecar.adapters.turns import Answer, Asked, Event, Setup, TurnSaid, Write

Decide = Callable[[Asked], Answer | None]
"""The answer to a question; None to leave it open."""


class Driven:
    """A program and its adapter, in a process group of its own.

    Attributes:
        said: all that came of its output.
    """

    def __init__(
        self,
        name: str,
        setup: Setup,
        environment: Mapping[str, str] | None = None,
        decide: Decide = lambda asked: Answer(allow=True),
        deadline: float = 60,
    ) -> None:
        self._make, self._setup = turn_adapter(name), setup
        self.adapter = self._make(setup)
        self.said: list[TurnSaid] = []
        self.decide = decide
        self._deadline = deadline
        self._read = 0
        for path, text in self.adapter.files().items():
            file = Path(setup.home, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        self._environment = {**os.environ, **self.adapter.environment(), **(environment or {})}
        self._cwd = setup.cwd or None
        self._program: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self.adapter.resident:
            self._start(self.adapter.command())
            self._write(self.adapter.begin())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._program is not None:
            if self._program.poll() is None:
                os.killpg(self._program.pid, signal.SIGKILL)
            self._program.wait(10)
            assert self._program.stdin
            assert self._program.stdout
            self._program.stdin.close()
            self._program.stdout.close()

    def turn(self, prompt: str) -> list[TurnSaid]:
        """One turn to its result; what was said in it."""
        self.begin(prompt)
        return self.until(EventKind.RESULT)

    def begin(self, prompt: str) -> None:
        """The begin of a turn."""
        self._read = len(self.said)
        if not self.adapter.resident:
            self.adapter = self._make(replace(self._setup, session=self.adapter.session))
            self._start(self.adapter.command(prompt))
        self._write(self.adapter.turn(prompt))
        if not self.adapter.resident:
            assert self._program
            assert self._program.stdin
            self._program.stdin.close()

    def interrupt(self) -> None:
        """The interrupt as the adapter says it, else by SIGINT."""
        data = self.adapter.interrupt()
        if data:
            self._write(data)
        else:
            assert self._program
            os.killpg(self._program.pid, signal.SIGINT)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """A signal to the program."""
        assert self._program
        os.killpg(self._program.pid, number)

    def until(self, kind: EventKind | type[TurnSaid]) -> list[TurnSaid]:
        """What was said in this turn up to the first of that kind; fails after the deadline."""
        end = time.monotonic() + self._deadline
        while not any(_is(item, kind) for item in self.said[self._read :]):
            left = end - time.monotonic()
            assert left > 0, f"no {kind} in {self._deadline} s, only {self.said[self._read :]}"
            self._take(left)
        return self.said[self._read :]

    def _take(self, patience: float) -> None:
        assert self._program
        assert self._program.stdout
        if not select.select([self._program.stdout], [], [], patience)[0]:
            return
        data = os.read(self._program.stdout.fileno(), 1 << 16)
        self._carry_out(self.adapter.feed(data) if data else self._finished())

    def _finished(self) -> list[TurnSaid]:
        assert self._program
        code = self._program.wait(self._deadline)
        said = self.adapter.finish(End(code, max(-code, 0), signalled=False))
        assert said, f"the program has ended with {code}"
        return said

    def _carry_out(self, said: list[TurnSaid]) -> None:
        for item in said:
            self.said.append(item)
            if isinstance(item, Write):
                self._write(item.data)
            elif isinstance(item, Asked) and (answer := self.decide(item)) is not None:
                self._write(self.adapter.answer(item.request, answer))

    def _start(self, command: tuple[str, ...]) -> None:
        self.__exit__(None, None, None)
        self._program = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
            cwd=self._cwd,
            start_new_session=True,
        )

    def _write(self, data: bytes) -> None:
        assert self._program
        assert self._program.stdin
        self._program.stdin.write(data)
        self._program.stdin.flush()


def _is(item: TurnSaid, kind: EventKind | type[TurnSaid]) -> bool:
    if isinstance(kind, EventKind):
        return isinstance(item, Event) and item.kind is kind
    return isinstance(item, kind)


def fields(said: list[TurnSaid], kind: EventKind) -> list[dict[str, Any]]:
    """The fields of the events of a kind."""
    return [dict(item.fields) for item in said if isinstance(item, Event) and item.kind is kind]


def words(said: list[TurnSaid]) -> str:
    """All text that was said."""
    return "".join(item["text"] for item in fields(said, EventKind.TEXT))
