"""No wall at all: a plain process with the rights of the user who runs Postroom.

Chosen by name only, never as a fall-back. The environment is cleared and the processes end as with a
wall, but the program can read and reach whatever the user can.
"""

from __future__ import annotations

from postroom.sandbox import policy
from postroom.sandbox.arguments import SHOWN
from postroom.sandbox.limits import limited
from postroom.sandbox.port import Capability, Level, SandboxPaths, SandboxSpec
from postroom.sandbox.reaped import ReapedHandle, local_paths, make_runtime, start_reaped
from postroom.sandbox.selftest import KINDS

NAME = "none"


class PlainProvider:
    """Starts programs without a wall."""

    name = NAME
    states = Level.NONE
    holes = frozenset(KINDS)
    covers = False
    shown = SHOWN  # it sees all, but a template that runs here must also run behind a wall

    async def probe(self) -> Capability:
        """Level `none`, always."""
        return Capability(NAME, Level.NONE, "a plain process: it can reach all that its user can")

    def paths(self, spec: SandboxSpec) -> SandboxPaths:
        """The host's own paths."""
        return local_paths(spec)

    async def start(self, spec: SandboxSpec) -> ReapedHandle:
        """Start `spec` as it is (see `SandboxProvider.start`)."""
        policy.check(spec, self.paths(spec))
        make_runtime(spec)
        return await start_reaped(spec, limited(spec, alone=False), Level.NONE)
