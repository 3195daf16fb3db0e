"""The enforced wall of bubblewrap around a network with an address, for programs that ask for one.

Some programs do not start with loopback only. This provider gives them an interface with an address and a default
route, which lead nowhere (`postroom.sandbox.dummy_network`). The rest is bubblewrap's.
"""

from __future__ import annotations

import os
import sys

from postroom.errors import SandboxUnavailable
from postroom.sandbox import dummy_network
from postroom.sandbox.bubblewrap import BubblewrapProvider
from postroom.sandbox.limits import SCRIPT
from postroom.sandbox.port import Capability, Level

NAME = "netns"
REMEDY = (
    "run Postroom as root on a kernel with network namespaces and veth (`modprobe veth`), or do without an"
    " address: --sandbox bubblewrap"
)


class NetnsProvider(BubblewrapProvider):
    """Starts sandboxes in a network namespace that has an address; for the real root only."""

    name = NAME
    own_network = False

    async def probe(self) -> Capability:
        """Start a real sandbox around the wall self-test, with each bwrap until one holds."""
        if sys.platform == "linux" and os.geteuid() != 0:
            return Capability(NAME, Level.NONE, "only root can make its network", REMEDY)
        return await super().probe()

    def _command(self) -> list[str]:
        return [*SCRIPT, dummy_network.__file__, str(os.getpid()), "--", *super()._command()]

    def _unavailable(self, output: str) -> SandboxUnavailable:
        lines = [line for line in output.splitlines() if line.startswith("dummy network: ")]
        if lines:
            return SandboxUnavailable(f"cannot make the network: {lines[-1]}", remedy=REMEDY)
        return super()._unavailable(output)
