"""The sidecar's first act: try the wall it was put behind, and say what it found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postroom.sandbox import selftest
from postroom.sandbox.selftest import Canaries, WallReport

BREACHED = 86
"""Exit code of a sidecar that found a hole in its wall that was not stated."""

NO_WALL = "none"


@dataclass(frozen=True, slots=True)
class Wall:
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


def examine(canaries: Mapping[str, Any], claimed: str, holes: tuple[str, ...] = ()) -> Wall:
    """Try every canary; takes half a second if one does not answer."""
    if not canaries:
        return Wall(None, claimed, holes)
    return Wall(selftest.run(Canaries.from_json(json.dumps(canaries))), claimed, holes)
