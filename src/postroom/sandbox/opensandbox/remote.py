"""An OpenSandbox server, and the layout of its containers."""

from __future__ import annotations

from dataclasses import dataclass, field

NAME = "opensandbox"

BASE = "/tmp/postroom"  # noqa: S108 (in the container, which holds one worker)
"""Folder in the container for Postroom's files. An image without root can make it, too."""
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
"""Loopback ports of its sidecar: execd and its egress control could later listen on arbitrary free ones."""

EXECD_TOKEN = f"{SECRETS}/execd"
"""File with the token of the container's execd."""

ROOM_LABEL, RUN_LABEL = "postroom.room", "postroom.run"
"""Metadata of Postroom's sandboxes: the post room that made them, and its run."""


@dataclass(frozen=True)
class Remote:
    """An OpenSandbox server, and the settings of its sandboxes.

    Attributes:
        url: of its lifecycle API, without `/v1`.
        image: with Python and the sidecar's imports.
        gateway: `host:port` of the gateway for sandboxes of other machines.
        gateway_ca: certificates (PEM) to trust there; "" for the image's own.
        room: name of this post room among all that use the server.
        run: name of this run of it.
        lifetime: seconds after which the server removes a sandbox that nobody has renewed.
        ready: seconds that a container has to come alive.
        request: seconds for one request.
        poll: seconds between two polls of a program.
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
        """The one host name that a sandbox may reach."""
        return self.gateway.rpartition(":")[0].strip("[]")
