"""The sidecar's first acts: protect its own memory, and test the wall of its sandbox."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postroom.errors import EnvironmentFault
from postroom.sandbox import selftest
from postroom.sandbox.selftest import Canaries, WallReport

BREACHED = 86
"""Exit code of a sidecar that found a hole in its wall which the provider does not state."""

NO_WALL = "none"

_PR_SET_DUMPABLE = 4  # prctl(2)


@dataclass(frozen=True, slots=True)
class WallCheck:
    """The result of the wall's self-test.

    Attributes:
        report: every canary; None where there were none.
        claimed: the level that the sandbox provider claims.
        holes: kinds of canaries that the provider states as reachable.
    """

    report: WallReport | None
    claimed: str
    holes: tuple[str, ...] = ()

    @property
    def breaches(self) -> tuple[str, ...]:
        """The canaries that the sidecar reached against the claim; () where the provider claims no wall."""
        if self.report is None or self.claimed in {"", NO_WALL}:
            return ()
        return self.report.unexplained(self.holes)

    @property
    def breached(self) -> bool:
        """Whether there are breaches."""
        return bool(self.breaches)

    @property
    def level(self) -> str:
        """The level that the test found: the claimed one unless it was breached; "" without a test."""
        if self.report is None:
            return ""
        return NO_WALL if self.breached else self.claimed

    def event(self) -> dict[str, Any]:
        """The worker's first event."""
        report = self.report.to_dict() if self.report else None
        return {"type": "wall", "report": report, "level": self.level}


def examine(canaries: Mapping[str, Any], claimed: str, holes: tuple[str, ...] = ()) -> WallCheck:
    """Try every canary; takes half a second if one is silent."""
    if not canaries:
        return WallCheck(None, claimed, holes)
    return WallCheck(selftest.run(Canaries.from_json(json.dumps(canaries))), claimed, holes)


def harden() -> None:
    """Forbid tracing, reading through procfs, and core files of this process, not of those that it starts.

    Otherwise an agent could read the token out of `/proc/<sidecar>/environ` or the sidecar's memory. That keeps secrets
    out of transcripts and is not a wall: sidecar and agent are one trust domain.

    Raises:
        EnvironmentFault: the kernel refused.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if sys.platform != "linux":
        return  # macOS asks for an entitlement before one process may read another
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise EnvironmentFault(f"the sidecar cannot protect its memory: {reason}")
