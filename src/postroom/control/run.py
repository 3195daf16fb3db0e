"""One start of a worker."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.a2a.cards import Card
from postroom.sandbox.port import ExitStatus, SandboxHandle


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
        stopping: somebody asked it to end.
        ended: how it ended, None while it runs.
        detail: why it ended, for people.
    """

    handle: SandboxHandle
    provider: str
    started_at: float
    nick: str
    card: Card
    id: str
    interactive: bool
    stopping: bool = False
    ended: ExitStatus | None = None
    detail: str = ""

    @property
    def running(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self.ended is None


def how(ended: ExitStatus) -> str:
    """How a sandbox ended, for people."""
    if ended.signal is not None:
        return f"sandbox ended by signal {ended.signal}"
    return f"sandbox ended with exit code {ended.code}"
