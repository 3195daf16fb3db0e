"""The NATS that somebody else runs, as the settings name it."""

from __future__ import annotations

from postroom.bus.external import ExternalBus
from postroom.bus.places import parse_servers
from postroom.errors import InvalidInput
from postroom.identity.trust import Trust
from postroom.settings import Settings
from postroom_a2a.nats import Credentials


def external_bus(settings: Settings, trust: Trust) -> ExternalBus:
    """The bus at `settings.nats_urls`, not yet examined.

    Raises:
        InvalidInput: the addresses, the authority's file, or what is asked for beside them, cannot be used.
    """
    if settings.memory:
        raise InvalidInput(
            "--memory keeps nothing, and the NATS at POSTROOM_NATS_URL keeps what it is given",
            remedy="leave out one of them",
        )
    servers = parse_servers(settings.nats_urls, always_tls=settings.tls == "always")
    credential = trust.system_credential()
    return ExternalBus(
        servers,
        Credentials(credential.sign, lambda: credential.jwt),
        lambda: trust.proxy_key.public,
        authority=settings.nats_ca,
    )
