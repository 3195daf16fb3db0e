"""Where A2A over gRPC is served, and how a call names its agent there."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from postroom.errors import EnvironmentFault
from postroom.settings import DEFAULT_ORG, Settings


def check(settings: Settings) -> None:
    """Raise EnvironmentFault if a setting asks for gRPC and what it needs is not installed."""
    if not settings.grpc_listen:
        return
    missing = [name for name in ("grpc", "a2a") if find_spec(name) is None]
    if missing:
        raise EnvironmentFault(
            "A2A over gRPC needs packages that are not installed",
            remedy="pip install 'postroom[grpc]', or postroom config unset a2a.grpc_listen",
        )


@dataclass(slots=True)
class GrpcPlace:
    """The addresses of A2A over gRPC, once it listens.

    Attributes:
        near: `host:port` for clients of this machine, "" before it listens.
        far: the same for others.
    """

    near: str = ""
    far: tuple[str, ...] = ()

    def interfaces(self, org: str, uid: str, *, near: bool) -> list[dict[str, str]]:
        """The interfaces of an agent's card."""
        places = ((self.near,) if self.near else ()) if near else self.far
        return [
            {
                "url": place,
                "protocolBinding": "GRPC",
                "protocolVersion": "1.0",
                "tenant": tenant_of(org, uid),
            }
            for place in places
        ]


def tenant_of(org: str, uid: str) -> str:
    """The tenant that names an agent."""
    return uid if org == DEFAULT_ORG else f"{org}/{uid}"


def read_tenant(tenant: str) -> tuple[str, str]:
    """Organisation, and uid or nick, in a tenant."""
    org, slash, ref = tenant.partition("/")
    return (org, ref) if slash else (DEFAULT_ORG, org)
