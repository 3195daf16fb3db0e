"""Kills processes of a post room at random, and brings back what a person would bring back."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.e2e.conftest import PostRoom
from tests.e2e.processes import Process, agent_of, below, living, sidecar_of

KINDS = ("sandbox", "sidecar", "agent", "nats", "control")
CRASHES_BORNE = 4
"""Crashes of nats-server in a minute with which a post room stays up (`postroom.bus.supervisor`), less one."""


@dataclass(slots=True)
class Reaper:
    """Kills one thing at a time, and does what a person does about it."""

    room: PostRoom
    rng: random.Random
    workers: tuple[str, ...]
    kinds: tuple[str, ...]
    killed: Counter[str] = field(default_factory=Counter)
    seen: set[Process] = field(default_factory=set)
    crashes: list[float] = field(default_factory=list)

    def strike(self) -> None:
        kind = self.rng.choice(self.kinds)
        worker = self.rng.choice(self.workers)
        self.note()
        server = self.room.server
        if kind == "nats" and not self._bearable():
            return
        if kind in ("nats", "control"):
            victim = living().get(server["nats_pid" if kind == "nats" else "pid"])
        else:
            victim = self._inside(kind, worker)
        if victim is None:
            return
        victim.kill()
        self.killed[kind] += 1
        if kind == "control":
            self.room.up()
        elif kind in ("sandbox", "sidecar"):
            self.room.run("restart", worker)

    def note(self) -> None:
        """Remember every process of the post room, to ask for it after the end."""
        everything = living()
        pid = self.room.server["pid"]
        self.seen |= {everything[pid], *below(pid)}

    def _bearable(self) -> bool:
        now = time.monotonic()
        self.crashes = [at for at in self.crashes if now - at < 60.0]
        if len(self.crashes) >= CRASHES_BORNE:
            return False
        self.crashes.append(now)
        return True

    def _inside(self, kind: str, worker: str) -> Process | None:
        pid = self.room.worker(worker)["pid"]
        if pid is None:
            return None
        if kind == "sandbox":
            return living().get(pid)
        return sidecar_of(pid) if kind == "sidecar" else agent_of(pid)
