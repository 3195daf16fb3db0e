"""The sidecar's first acts: protect its own memory, try the wall it was put behind, and say what it found."""

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
"""Exit code of a sidecar that found a hole in its wall that was not stated."""

NO_WALL = "none"

_PR_SET_DUMPABLE = 4  # prctl(2)


@dataclass(frozen=True, slots=True)
class WallCheck:
    """What the self-test found.

    Attributes:
        report: every canary; None where there was nothing to try.
        claimed: the level that the sandbox provider claims.
        holes: kinds of canaries that it says can be reached.
    """

    report: WallReport | None
    claimed: str
    holes: tuple[str, ...] = ()

    @property
    def breaches(self) -> tuple[str, ...]:
        """What was reached and must not have been; nothing where no wall is claimed."""
        if self.report is None or self.claimed in {"", NO_WALL}:
            return ()
        return self.report.unexplained(self.holes)

    @property
    def breached(self) -> bool:
        """Whether something was reached that the wall is said to keep away."""
        return bool(self.breaches)

    @property
    def level(self) -> str:
        """The level as found: what is claimed, unless the test says otherwise; "" if there was none."""
        if self.report is None:
            return ""
        return NO_WALL if self.breached else self.claimed

    def event(self) -> dict[str, Any]:
        """The worker's first event."""
        report = self.report.to_dict() if self.report else None
        return {"type": "wall", "report": report, "level": self.level}


def examine(canaries: Mapping[str, Any], claimed: str, holes: tuple[str, ...] = ()) -> WallCheck:
    """Try every canary; takes half a second if one does not answer."""
    if not canaries:
        return WallCheck(None, claimed, holes)
    return WallCheck(selftest.run(Canaries.from_json(json.dumps(canaries))), claimed, holes)


def harden() -> None:
    """Forbid tracing, reading through procfs, and core files of this process; what it starts is not affected.

    Without it an agent reads the token out of `/proc/<sidecar>/environ` or the sidecar's memory. It is a courtesy to
    the transcript and not a wall: sidecar and agent are one trust domain.

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
