"""The NATS of a post room: our own server or somebody else's, and the record of which one has the log.

The record, `bus.json`, is made with the log, so that a post room never goes on with another bus by mistake. Addresses
may change: the time at which its first stream was made identifies a log on somebody else's servers.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from postroom.bus.block import configuration_block
from postroom.bus.embedded import STOP_GRACE
from postroom.bus.server_config import ServerConfig
from postroom.client.locate import command
from postroom.control.endpoints import Endpoints
from postroom.control.statefile import StateLock, prepare
from postroom.errors import Conflict, EnvironmentFault, InvalidInput
from postroom.identity import keyring
from postroom.identity.privatefile import write_private
from postroom.identity.trust import Trust
from postroom.settings import DEFAULT_NATS_PORT, DEFAULT_ORG, Settings

if TYPE_CHECKING:
    from postroom.bus.external import ExternalBus
    from postroom.bus.nats.admin import NatsAdmin  # not loaded this early in a start
    from postroom.control.certificate import CertificateKeeper

STREAM = "INBOX"


@dataclass(frozen=True, slots=True)
class BusRecord:
    """The content of `bus.json`.

    Attributes:
        urls: of somebody else's servers; empty for the embedded one.
        log: identifies the log on those servers; "" for the embedded one, which has no other.
    """

    urls: tuple[str, ...]
    log: str


def read(settings: Settings) -> BusRecord | None:
    """The record, None before there is a log."""
    path = settings.bus_file
    try:
        said = json.loads(path.read_bytes())
        return BusRecord(tuple(map(str, said["urls"])), str(said["log"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise EnvironmentFault(f"{path} is not what a post room writes") from error


def check_named(settings: Settings) -> None:
    """Check, before anything is started, that the settings name the bus with the log; a Conflict if another."""
    known = None if settings.memory else read(settings)
    if known is None or bool(known.urls) == bool(settings.nats_urls):
        return
    if known.urls:
        urls = ",".join(known.urls)
        raise Conflict(
            f"this post room has its log on {urls}, but no NATS is named now",
            remedy=f"{command(settings.state, f'config set nats.url {urls}')} (or POSTROOM_NATS_URL={urls}); "
            "or --state DIR for another post room",
        )
    raise Conflict(
        f"this post room has its log in {settings.nats}, not on {','.join(settings.nats_urls)}",
        remedy=f"unset POSTROOM_NATS_URL, or {command(settings.state, 'config unset nats.url')}; "
        "or --state DIR for another post room",
    )


async def check_log(settings: Settings, admin: NatsAdmin) -> None:
    """Check, before a stream is made, that the servers have the known log; a Conflict if not."""
    known = read(settings) if settings.nats_urls else None
    if known is None or known.log == await admin.created(STREAM):
        return
    urls = ",".join(known.urls)
    raise Conflict(
        f"{','.join(settings.nats_urls)} does not have the log of this post room, which is on {urls}",
        remedy=f"POSTROOM_NATS_URL={urls}, or --state DIR for another post room",
    )


async def remember(settings: Settings, admin: NatsAdmin) -> None:
    """Record where the log is, now that it exists."""
    if settings.memory:
        return
    log = await admin.created(STREAM) if settings.nats_urls else ""
    now = BusRecord(settings.nats_urls, log)
    if now != read(settings):
        record = {"urls": now.urls, "log": now.log}
        write_private(settings.bus_file, json.dumps(record).encode())


def server_config(
    settings: Settings,
    trust: Trust,
    endpoints: Endpoints,
    certificate: CertificateKeeper | None,
) -> ServerConfig:
    """The embedded server of a post room whose state folder this process has locked."""
    return ServerConfig(
        folder=settings.nats,
        host=endpoints.nats_host,
        port=DEFAULT_NATS_PORT if settings.nats_port is None else settings.nats_port,
        operator_jwt=trust.operator_jwt,
        system_account=trust.system_account,
        preload=trust.account_jwts(),
        proxies=trust.proxies,
        tls=certificate.server_tls if certificate and endpoints.encrypted else None,
        memory=settings.memory,
        program=settings.nats_server,
        # No post room runs here, so only the server of a killed one can have the store; it is about to end.
        lock_timeout=STOP_GRACE,
    )


def external_bus(settings: Settings, trust: Trust) -> ExternalBus:
    """The bus at `settings.nats_urls`, not examined yet."""
    # Only a post room on somebody else's servers pays for these imports.
    from postroom.bus.external import ExternalBus
    from postroom.bus.places import parse_servers
    from postroom_a2a.nats import Credentials

    if settings.memory:
        raise InvalidInput(
            "--memory stores nothing, but the NATS at POSTROOM_NATS_URL stores the log",
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


def nats_block(settings: Settings, folder: str) -> dict[str, Any]:
    """The configuration for somebody else's servers; missing keys are made, under the state folder's lock.

    Args:
        folder: of the server, on its own machine.

    Raises:
        AlreadyRunning: a post room is just making the keys.
    """
    os.umask(0o077)
    prepare(settings)
    if keyring.load(settings.keys) is not None:
        trust = Trust.load_or_create(settings.keys, DEFAULT_ORG)
    else:
        lock = StateLock.acquire(settings)
        try:
            trust = Trust.load_or_create(settings.keys, DEFAULT_ORG)
        finally:
            lock.release()
    return configuration_block(
        operator_jwt=trust.operator_jwt,
        system_account=trust.system_account,
        system_jwt=trust.account_jwts()[trust.system_account],
        proxies=trust.proxies,
        folder=folder,
    )
