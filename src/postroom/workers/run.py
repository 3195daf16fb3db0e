"""One start of a worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from postroom.directory.cards import Card
from postroom.protocol.presence import OUT_OF_MEMORY
from postroom.sandbox.limit_monitor import LimitedHandle, memory_exceeded
from postroom.sandbox.port import ExitStatus, FarHandle, Limits, SandboxHandle


@dataclass(slots=True)
class Run:
    """One start of a worker in this process.

    Attributes:
        handle: its sandbox.
        provider: name of the sandbox provider.
        started_at: seconds since the epoch.
        nick: of the worker.
        card: its card, not signed: that of its template, or what it announced since.
        id: of this start; what it wrote of a task carries it.
        interactive: its template lets it report events.
        limits: what it may use.
        unenforced: those of them that nothing keeps on this machine.
        stopping: somebody asked it to end.
        ended: how it ended, None while it runs.
        detail: why it ended, for people.
        exceeded: the limit that it was ended for, "" for none.
    """

    handle: SandboxHandle
    provider: str
    started_at: float
    nick: str
    card: Card
    id: str
    interactive: bool
    limits: Limits = field(default_factory=Limits)
    unenforced: tuple[str, ...] = ()
    stopping: bool = False
    ended: ExitStatus | None = None
    detail: str = ""
    exceeded: str = ""

    @property
    def far(self) -> FarHandle | None:
        """The way to it where it runs on another machine."""
        return self.handle.far if isinstance(self.handle, LimitedHandle) else None

    @property
    def running(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self.ended is None


def exceeded(ended: ExitStatus, limits: Limits) -> str:
    """The limit that a sandbox with these `limits` ended for, or ""."""
    if not ended.exceeded and ended.code == OUT_OF_MEMORY and limits.memory is not None:
        return memory_exceeded(limits.memory)
    return ended.exceeded


def how(ended: ExitStatus) -> str:
    """How a sandbox ended, for people."""
    if ended.signal is not None:
        return f"sandbox ended by signal {ended.signal}"
    return f"sandbox ended with exit code {ended.code}"
