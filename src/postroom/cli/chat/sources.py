"""What comes to a conversation: the person's lines and the live events.

The events, and lines that nobody edits, are read by a thread each, which puts them into one bounded queue for the main
thread. A failure in a thread goes there too, so that no thread ends unnoticed. Both can be ended from outside, even
while they wait. Lines that are edited are read by the main thread itself (`Prompt`), and the queue waits meanwhile.
"""

from __future__ import annotations

import codecs
import os
import queue
import selectors
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, Self

from postroom.cli.prompt import LONGEST, Prompt, unseen
from postroom.client.stream import Event
from postroom.errors import MessageTooLarge
from postroom.protocol.limits import MAX_ENVELOPE_BYTES

BOUND = 1000
TICK = 0.2
JOIN = 2.0


@dataclass(frozen=True, slots=True)
class Line:
    """A typed line, without its end."""

    text: str


@dataclass(frozen=True, slots=True)
class CutLine:
    """A typed line so long that the terminal has dropped its end."""


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The person types no more."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A thread ended by an error, which the main thread is to raise."""

    error: BaseException


class LiveEvents(Protocol):
    """Events as they come; `close` ends the iteration from another thread."""

    def __iter__(self) -> Iterator[Event]:
        """The events, until `close`."""
        ...

    def close(self) -> None:
        """End it."""
        ...


Item = Line | CutLine | EndOfInput | Event | Broken


class Sources:
    """Runs the threads. Use it in a `with` statement.

    Args:
        descriptor: file descriptor of the person's input, -1 for none.
        prompt: edits the person's lines instead, in the main thread.
    """

    def __init__(self, events: LiveEvents, descriptor: int, prompt: Prompt | None = None) -> None:
        self._queue: queue.Queue[Item] = queue.Queue(BOUND)
        self._events = events
        self._descriptor = descriptor
        self._prompt = prompt
        self._terminal = descriptor >= 0 and os.isatty(descriptor)
        self._stopping = threading.Event()
        self._asks = False
        self._ended = False
        self._secret: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        sources: dict[str, Callable[[], Iterator[Item]]] = {"chat-events": self._events_items}
        if prompt is None:
            sources["chat-input"] = self._input_items
        self._threads = [
            threading.Thread(target=self._run, args=(source,), name=name, daemon=True)
            for name, source in sources.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        os.write(self._wake_write, b"\0")
        self._events.close()
        for thread in self._threads:
            thread.join(JOIN)
        os.close(self._wake_write)
        os.close(self._wake_read)

    def get(self, timeout: float | None = None) -> Item:
        """The next item; a line that the person has begun goes before what comes.

        Raises:
            queue.Empty: there was none for `timeout` seconds.
        """
        if self._prompt is None or self._ended:
            return self._queue.get(timeout=timeout)
        begun = self._prompt.begun(self._wake_read, timeout)
        if begun is None:
            raise queue.Empty
        if not begun:
            os.read(self._wake_read, 1)
            return self._queue.get()
        line = self._prompt.line()
        self._ended = line is None
        return EndOfInput() if line is None else Line(line)

    def waiting(self) -> Iterator[Item]:
        """The items that are there already."""
        with suppress(queue.Empty):
            while True:
                yield self._queue.get_nowait()

    def secret(self, mark: str) -> str:
        """The line that the person types next, unseen, behind `mark`; "" if they type no more.

        Live events wait until then.
        """
        if self._prompt is not None:
            return self._prompt.secret(f"{mark}: ").strip()
        # It is awaited before the mark shows, or a quick one would be sent as a message.
        with unseen(self._descriptor, f"{mark}: ", self._await_secret):
            # The input may have ended just now: then nobody else looks at `_asks` any more.
            return "" if self._ended else self._secret.get()

    def _await_secret(self) -> None:
        self._asks = True

    def _run(self, source: Callable[[], Iterator[Item]]) -> None:
        try:
            for item in source():
                self._put(item)
        except BaseException as error:  # noqa: BLE001 (raised again by the main thread)
            self._put(Broken(error))

    def _put(self, item: Item) -> None:
        """Wait for room in the queue, but not beyond the end of the conversation."""
        while not self._stopping.is_set():
            try:
                self._queue.put(item, timeout=TICK)
            except queue.Full:
                continue
            if self._prompt is not None and not self._ended:
                os.write(self._wake_write, b"\0")
            return

    def _events_items(self) -> Iterator[Item]:
        yield from self._events

    def _input_items(self) -> Iterator[Item]:
        try:
            for item in self._typed():
                if self._asks and isinstance(item, Line):
                    self._asks = False
                    self._secret.put(item.text.strip())
                else:
                    yield item
        finally:
            self._ended = True
            if self._asks:
                self._secret.put("")
        yield EndOfInput()

    def _typed(self) -> Iterator[Line | CutLine]:
        if self._descriptor >= 0:
            decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
            pending = ""
            for chunk in self._chunks():
                if self._terminal and len(chunk) >= LONGEST:
                    yield CutLine()
                    continue
                *lines, pending = (pending + decoder.decode(chunk)).split("\n")
                yield from (Line(line.removesuffix("\r")) for line in lines)
                if len(pending) > MAX_ENVELOPE_BYTES:
                    raise MessageTooLarge(f"a line is longer than {MAX_ENVELOPE_BYTES} characters")
            pending += decoder.decode(b"", final=True)
            if pending:
                yield Line(pending)

    def _chunks(self) -> Iterator[bytes]:
        """The input of the descriptor, until its end or ours.

        Not `sys.stdin`: a thread that waits inside its lock could not be ended, and the interpreter would complain at
        its exit.
        """
        while self._readable() and (chunk := os.read(self._descriptor, 65536)):
            yield chunk

    def _readable(self) -> bool:
        """Wait for input; False when the conversation ends."""
        with selectors.PollSelector() as selector:  # poll, unlike epoll, takes regular files too
            selector.register(self._wake_read, selectors.EVENT_READ)
            selector.register(self._descriptor, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select()}
        return self._wake_read not in ready
