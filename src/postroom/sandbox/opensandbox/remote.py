"""Where sandboxes are that run on an OpenSandbox server, and how they are laid out inside."""

from __future__ import annotations

from dataclasses import dataclass, field

NAME = "opensandbox"

BASE = "/tmp/postroom"  # noqa: S108 (in the container, which holds one worker)
"""Folder in the container for what is Postroom's. An image without root can make it, too."""
WORKSPACE = "/workspace"
SECRETS = f"{BASE}/secrets"
STATE = f"{BASE}/state"
HOME = f"{BASE}/home"
TMP = f"{BASE}/tmp"  # noqa: S108
CODE = f"{BASE}/postroom.zip"
MOUNTS = f"{BASE}/mounts"

A2A_PORT = 44780
"""Loopback port of the worker's A2A server in the container."""

PORTS = (44781, 44782, 44783, 44784)
"""Those of its sidecar: any free ones could be what execd and its egress control listen on later."""

EXECD_TOKEN = f"{SECRETS}/execd"
"""File with the token of the container's execd."""

ROOM_LABEL, RUN_LABEL = "postroom.room", "postroom.run"
"""Metadata of our sandboxes: whose they are, and which life of that post room has made them."""


@dataclass(frozen=True)
class Remote:
    """An OpenSandbox server, and what its sandboxes are told.

    Attributes:
        url: of its lifecycle API, without `/v1`.
        image: container image with Python and what the sidecar imports.
        gateway: `host:port` of the gateway for sandboxes of other machines.
        gateway_ca: certificates (PEM) to trust there, "" for what the image trusts.
        room: name of this post room among all that use the server.
        run: name of this life of it.
        lifetime: seconds after which the server removes a sandbox that nobody has renewed.
        ready: seconds that one has to come alive.
        request: seconds for one request.
        poll: seconds between two looks at a program.
        lost: seconds without an answer after which a sandbox counts as lost.
    """

    url: str
    key: str = field(repr=False)
    image: str
    python: str
    gateway: str
    gateway_ca: str = field(repr=False)
    room: str
    run: str
    lifetime: float = 600.0
    ready: float = 90.0
    request: float = 30.0
    poll: float = 1.0
    lost: float = 120.0

    @property
    def gateway_host(self) -> str:
        """The one name that a sandbox may reach."""
        return self.gateway.rpartition(":")[0].strip("[]")
