"""What stands between a session and its mail: files, trust, settings of a client's home, each with what mends it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from postroom.connect import asking, files, places, writing
from postroom.connect.clients import CLIENTS
from postroom.connect.clients.base import Client, Home, Installed
from postroom.errors import NotFound, PostroomError
from postroom.templates.doctor import MISSING, NOTE, OK, Finding
from postroom.templates.programs import Machine, find
from postroom_a2a.times import format_time


def findings(machine: Machine, chosen: places.Settings | None = None) -> list[Finding]:
    """The post room, `postroom connect run`, and all homes of all clients that are installed or connected.

    Args:
        chosen: with the post room that the person's commands are for.
    """
    settings = places.read_settings()
    if chosen is not None and not writing.receipts():
        settings = chosen
    installed = Installed(places.hook(), settings.approvals)
    status = asking.status()
    found = [_post_room(settings), *_elsewhere(settings, chosen), _run(status)]
    if writing.receipts():
        found.append(_hook(installed.hook))
    for client in CLIENTS.values():
        found += _client(client, machine, installed, status)
    return found


def _hook(path: Path) -> Finding:
    try:
        content = files.content_of(path)
    except PostroomError as error:
        return Finding("connect", "hook", MISSING, error.message, "postroom connect CLIENT")
    if content is None:
        return Finding(
            "connect", "hook", MISSING, f"{path} is not there", "postroom connect CLIENT"
        )
    if content != places.hook_content().encode():
        detail = f"{path} is that of another version or another place of Postroom"
        return Finding("connect", "hook", MISSING, detail, "postroom connect CLIENT")
    return Finding("connect", "hook", OK, f"{path} is as it has to be")


def _post_room(settings: places.Settings) -> Finding:
    try:
        where = settings.place()().url
    except PostroomError as error:
        return Finding("connect", "post room", MISSING, error.message, error.remedy)
    return Finding("connect", "post room", OK, f"the sessions' post room is at {where}")


def _elsewhere(settings: places.Settings, chosen: places.Settings | None) -> Iterator[Finding]:
    """The person has logged in somewhere else since: sessions stay where they were connected."""
    if chosen is None or settings.room == chosen.room:
        return
    detail = "your commands are for another one than the sessions"
    if chosen.login:
        detail += f": login {chosen.login}"
    remedy = "postroom connect CLIENT: the sessions then go where your commands do"
    yield Finding("connect", "post room", NOTE, detail, remedy)


def _run(status: Mapping[str, Any]) -> Finding:
    if not status:
        detail = "it does not run: the first hook of a session begins it"
        return Finding("connect", "run", NOTE, detail)
    if error := str(status.get("error", "")):
        log = f"{places.folder() / places.LOG} has more"
        return Finding("connect", "run", MISSING, error, log)
    names = ", ".join(f"@{each['nick']}" for each in status.get("sessions", ()))
    return Finding("connect", "run", OK, f"it runs, for {names or 'no session'}")


def _client(
    client: Client, machine: Machine, installed: Installed, status: Mapping[str, Any]
) -> Iterator[Finding]:
    homes = writing.homes(client.name, client.home(machine))
    connected = any(receipt.written for receipt in homes)
    program = _program(client, machine)
    if program is None and not connected:
        return
    if program is not None:
        yield program
    for receipt in homes:
        yield from _home(client, receipt, machine, installed)
    if connected:
        yield _last_hook(client, status)


def _program(client: Client, machine: Machine) -> Finding | None:
    try:
        told = find(client.program, machine).version
    except NotFound:
        return None
    except PostroomError as error:
        return Finding(client.name, "program", MISSING, error.message, error.remedy)
    number = re.match(r"\d+\.\d+\.\d+", told)  # the package of a platform has its name behind
    version = number[0] if number else ""
    if version in client.tried:
        return Finding(client.name, "program", OK, f"{client.title} {version}, which was tried")
    known = f"{client.title} {version}" if version else f"a {client.title} that tells no version"
    return Finding(client.name, "program", NOTE, f"{known}; tried: {', '.join(client.tried)}")


def _home(
    client: Client, receipt: writing.Receipt, machine: Machine, installed: Installed
) -> Iterator[Finding]:
    home = receipt.home
    again = f"postroom connect {client.name}"
    if not receipt.written:
        yield Finding(client.name, "files", NOTE, f"{home} is not connected", again)
        return
    for part in client.parts(home, installed):
        try:
            content = files.content_of(part.path)
            well = content is not None and part.edit.there(content)
        except PostroomError as error:
            yield Finding(client.name, "files", MISSING, f"{part.path}: {error.message}", again)
        else:
            said = "is as it was written" if well else "is not as this version writes it"
            yield Finding(
                client.name, "files", OK if well else MISSING, f"{part.path} {said}", again
            )
    for remark in client.remarks(Home(home, machine, installed)):
        state = OK if remark.well and not remark.remedy else NOTE if remark.well else MISSING
        yield Finding(client.name, remark.what, state, remark.detail, remark.remedy)


def _last_hook(client: Client, status: Mapping[str, Any]) -> Finding:
    seen = status.get("hooks", {}).get(client.name)
    if seen:
        at = format_time(float(seen["at"]))
        return Finding(client.name, "last hook", OK, f"{seen['event']} at {at}")
    remedy = f"start {client.program} anew, and type something"
    return Finding(client.name, "last hook", NOTE, "none was heard yet", remedy)
