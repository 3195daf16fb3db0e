"""On which bus the log of a state folder is, so that nobody goes on with another one by mistake.

The record is made when the log is there for the first time. Addresses may change: a log on somebody else's servers
is known by the instant at which its first stream was made.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.client.locate import command
from postroom.errors import Conflict, EnvironmentFault
from postroom.identity.privatefile import write_private
from postroom.settings import Settings

if TYPE_CHECKING:
    from postroom.bus.nats.admin import NatsAdmin  # a start has not got that far

STREAM = "INBOX"


@dataclass(frozen=True, slots=True)
class Belonging:
    """What `bus.json` says.

    Attributes:
        urls: of somebody else's servers; empty for the embedded one.
        log: which log on those servers; "" for the embedded one, which has no other.
    """

    urls: tuple[str, ...]
    log: str


def read(settings: Settings) -> Belonging | None:
    """What is known, None before there is a log.

    Raises:
        EnvironmentFault: the file cannot be read.
    """
    path = settings.bus_file
    try:
        said = json.loads(path.read_bytes())
        return Belonging(tuple(map(str, said["urls"])), str(said["log"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise EnvironmentFault(f"{path} is not what a post room writes") from error


def check_named(settings: Settings) -> None:
    """Before anything is started: whether the settings mean the bus that the log is on, as far as they tell.

    Raises:
        Conflict: they mean another one.
    """
    known = None if settings.memory else read(settings)
    if known is None or bool(known.urls) == bool(settings.nats_urls):
        return
    if known.urls:
        urls = ",".join(known.urls)
        raise Conflict(
            f"this post room is on {urls}, and now no NATS is named",
            remedy=f"{command(settings.state, f'config set nats.url {urls}')} (or POSTROOM_NATS_URL={urls}); "
            "or --state DIR for another post room",
        )
    raise Conflict(
        f"this post room has its log in {settings.nats}, and not on {','.join(settings.nats_urls)}",
        remedy=f"unset POSTROOM_NATS_URL, or {command(settings.state, 'config unset nats.url')}; "
        "or --state DIR for another post room",
    )


async def check_log(settings: Settings, admin: NatsAdmin) -> None:
    """Before a stream is made: whether the servers have the log that is known.

    Raises:
        Conflict: they have another one, or none.
    """
    known = read(settings) if settings.nats_urls else None
    if known is None or known.log == await admin.created(STREAM):
        return
    urls = ",".join(known.urls)
    raise Conflict(
        f"{','.join(settings.nats_urls)} does not have the log of this post room, which is on {urls}",
        remedy=f"POSTROOM_NATS_URL={urls}, or --state DIR for another post room",
    )


async def remember(settings: Settings, admin: NatsAdmin) -> None:
    """There is a log now: note where.

    Raises:
        StateUnwritable: it cannot be noted.
    """
    if settings.memory:
        return
    log = await admin.created(STREAM) if settings.nats_urls else ""
    now = Belonging(settings.nats_urls, log)
    if now != read(settings):
        record = {"urls": now.urls, "log": now.log}
        write_private(settings.bus_file, json.dumps(record).encode())
