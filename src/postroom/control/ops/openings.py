"""What the operator opens of the machine to the lesser keys of an organisation; for the operator's key alone."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from postroom.control.bodies import OpeningBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.table import Operations
from postroom.control.orgs import Orgs
from postroom.control.parameters import NameRef
from postroom.control.parts import Parts
from postroom.control.pinned import PIN, pin_of
from postroom.control.principals import for_operator
from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.protocol import answers
from postroom.protocol.principal import Principal, Scope
from postroom.sandbox.never import never_shown, real_name
from postroom.settings import DEFAULT_ORG
from postroom.store.database import Store
from postroom.store.keys import FOLDER, WALL, Opening
from postroom_a2a.times import format_time

operations = Operations()


async def _shown(parts: Parts) -> answers.Openings:
    found = await parts.database.read(lambda store: store.openings.openings())
    return {
        "openings": [
            {
                "kind": each.kind,
                "name": each.name,
                "mode": each.mode,
                "opened_at": format_time(each.opened_at),
            }
            for each in found
        ],
        "next": None,
    }


@operations.get("/v1/orgs/{name}/openings", Scope.ADMIN, fails=(NotFound,))
async def list_(orgs: Orgs, name: NameRef, me: Principal) -> answers.Openings:
    """List what is open of the machine to the lesser keys of an organisation.

    For the operator's key alone.
    """
    for_operator(me)
    return await _shown(orgs.parts(name))


@operations.post("/v1/orgs/{name}/openings", Scope.ADMIN, fails=(NotFound, *PIN))
async def open_(orgs: Orgs, name: NameRef, body: OpeningBody, me: Principal) -> answers.Openings:
    """Open a folder or a weaker wall to the lesser keys of an organisation.

    Their workers may read the folder and what is below it, with `direct` also be given it to write. A wall of the
    level `none` is the account of the user who runs the post room. For the operator's key alone, with its PIN.
    """
    for_operator(me)
    parts = orgs.parts(name)
    acted_on(about=_about(name, body))
    opened = await asyncio.to_thread(_openings, parts, body)
    await pin_of(orgs.parts(DEFAULT_ORG), me, body.pin)()

    def keep(store: Store) -> None:
        for opening in opened:
            store.openings.open(opening)

    await parts.database.write(keep)
    return await _shown(parts)


@operations.delete("/v1/orgs/{name}/openings", Scope.ADMIN, fails=(NotFound, Conflict))
async def close(orgs: Orgs, name: NameRef, body: OpeningBody, me: Principal) -> answers.Openings:
    """Close a folder or a wall again.

    Workers of lesser keys that have it are ended, and their mail waits. 404 if it is not open. For the operator's
    key alone.
    """
    for_operator(me)
    parts = orgs.parts(name)
    acted_on(about=_about(name, body))
    names = [(FOLDER, body.folder), *_real(body.folder), (WALL, body.wall)]

    def forget(store: Store) -> int:
        return sum(store.openings.close(kind, of) for kind, of in names if of)

    if not await parts.database.write(forget):
        raise NotFound(
            f"that is not open to the organisation {name}", remedy=f"postroom org show {name}"
        )
    await parts.workers.enforce()
    return await _shown(parts)


def _about(org: str, body: OpeningBody) -> str:
    return " ".join(word for word in (org, body.folder, body.wall) if word)


def _real(folder: str) -> list[tuple[str, str]]:
    try:
        real = str(real_name(Path(folder))) if folder.startswith("/") else ""
    except (InvalidInput, ValueError):
        return []  # it is gone, and closed by the name that it was opened by
    return [(FOLDER, real)] if real != folder else []


def _openings(parts: Parts, body: OpeningBody) -> list[Opening]:
    now = time.time()
    found = [Opening(WALL, body.wall, "", now)] if body.wall else []
    if not body.folder:
        return found
    if not body.folder.startswith("/") or "\0" in body.folder:
        raise InvalidInput(f"{body.folder!r} is not an absolute path")
    real = real_name(Path(body.folder))
    own = (parts.installation.settings.state, parts.settings.state)
    if reason := never_shown(real, own):
        raise InvalidInput(
            f"{real} is opened to nobody: {reason}", remedy="name a folder of plain files"
        )
    return [*found, Opening(FOLDER, str(real), body.mode, now)]
