"""What this machine lacks for a post room and for coding agents, each finding with what mends it. Bounded in time."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from postroom.client.locate import locate
from postroom.disk import check_room
from postroom.errors import NotRunning, PostroomError
from postroom.protocol.shapes import Credential
from postroom.protocol.template_needs import Needs
from postroom.sandbox.port import Level
from postroom.sandbox.select import TO_HAVE, select
from postroom.settings import Settings
from postroom.templates import keys
from postroom.templates import node as nodes
from postroom.templates.programs import Machine, Program, find

PROBE_TIMEOUT = 30.0
"""Seconds for the trial of a sandbox."""

OK, NOTE, MISSING = "ok", "note", "missing"
"""States of a finding: as it should be; worth knowing; in the way."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        about: `machine`, or the template's name.
        what: the thing.
        state: `ok`, `note` or `missing`.
        detail: what was found.
        remedy: the command or step that mends it, "" for nothing to mend.
        more: all that is known, for who asks.
    """

    about: str
    what: str
    state: str
    detail: str
    remedy: str = ""
    more: tuple[str, ...] = ()


def machine_findings(settings: Settings) -> list[Finding]:
    """The machine: sandbox, disk, post room, git, node."""
    return [
        _sandbox(settings),
        _checked("disk", lambda: _disk(settings.state)),
        _post_room(settings.state),
        _git(),
        _node(Machine.here()),
    ]


def template_findings(
    name: str,
    needed: Needs,
    known: Sequence[Credential],
    machine: Machine,
    *,
    wanted: bool = True,
) -> list[Finding]:
    """A template: its program and its key.

    Args:
        known: the credentials that the post room keeps.
        wanted: the person has named it; else what it lacks is worth knowing, and a program that is not there is all
            that there is to say.
    """
    found = [_program(name, needed, machine)] if needed.program else []
    if needed.keys and (wanted or not found or found[0].state == OK):
        found.append(_key(name, needed, known, machine.env))
    return found if wanted else [_of_many(each) for each in found]


def _of_many(finding: Finding) -> Finding:
    """One of a template that nobody has named."""
    if finding.state != MISSING:
        return finding
    detail = "not installed" if finding.what == "program" else finding.detail
    return replace(finding, state=NOTE, detail=detail)


def _sandbox(settings: Settings) -> Finding:
    async def probed() -> Finding:
        async with asyncio.timeout(PROBE_TIMEOUT):
            chosen = await select(
                settings.sandbox, binary=settings.bwrap, at_least=Level(settings.isolation)
            )
        level = chosen.capability.level
        detail = f"{chosen.provider.name}: {level}"
        if level is Level.ENFORCED:
            return Finding("machine", "sandbox", OK, detail)
        return Finding("machine", "sandbox", NOTE, detail, more=(chosen.capability.detail,))

    try:
        return asyncio.run(probed())
    except TimeoutError:
        said = f"no sandbox was ready within {PROBE_TIMEOUT:g} s"
        return Finding(
            "machine", "sandbox", MISSING, said, "postroom doctor, when there is less to do"
        )
    except PostroomError as error:
        return Finding(
            "machine",
            "sandbox",
            MISSING,
            "; ".join([error.message, *_why(error)]),
            # The error's own remedy leads here.
            next(iter(_ways(error)), error.remedy),
            tuple(error.details),
        )


def _why(error: PostroomError) -> Iterator[str]:
    """Why the strongest sandbox does not hold, and which command takes a weaker one."""
    reasons = [line for line in error.details if not line.startswith(TO_HAVE)]
    if reasons:
        yield reasons[0]
    if (instead := error.remedy.rpartition("; ")[2]).startswith("spawn "):
        yield instead


def _ways(error: PostroomError) -> Iterator[str]:
    """How to have a sandbox, the strongest first."""
    for line in error.details:
        if line.startswith(TO_HAVE):
            yield line.partition(": ")[2]


def _checked(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding("machine", what, OK, check())
    except PostroomError as error:
        return Finding("machine", what, MISSING, error.message, error.remedy)


def _disk(state: Path) -> str:
    folder = next(place for place in (state, *state.parents) if place.is_dir())
    check_room(folder)
    free = shutil.disk_usage(folder).free
    return f"{free / (1 << 30):.1f} GiB are free at {folder}"


def _post_room(state: Path) -> Finding:
    try:
        return Finding("machine", "post room", OK, f"runs at {locate(state).url}")
    except NotRunning:
        return Finding(
            "machine", "post room", NOTE, "none runs; `postroom` and spawn start one", "postroom"
        )
    except PostroomError as error:
        return Finding("machine", "post room", MISSING, error.message, error.remedy)


def _git() -> Finding:
    if (path := shutil.which("git")) is not None:
        return Finding("machine", "git", OK, path)
    return Finding(
        "machine", "git", NOTE, "not installed: --as worktree needs it", "apt install git"
    )


def _node(machine: Machine) -> Finding:
    found = nodes.find("node", Path("/"), machine.home, machine.env)
    if found is not None:
        return Finding("machine", "node", OK, f"{found} {nodes.version(found)}".strip())
    said = f"none of version {nodes.OLDEST} or later: codex and gemini of npm need it"
    return Finding("machine", "node", NOTE, said, "install Node.js: https://nodejs.org")


def _program(name: str, needed: Needs, machine: Machine) -> Finding:
    try:
        program = find(needed.program, machine, needed.install)
    except PostroomError as error:
        return Finding(name, "program", MISSING, error.message, error.remedy)
    return Finding(name, "program", OK, _installed(program, needed))


def _installed(program: Program, needed: Needs) -> str:
    said = f"{program.real} {program.version}".strip()
    if not needed.tested:
        return f"{said} (untested with Postroom)"
    if program.version in {"", needed.tested}:
        return said
    return f"{said} (Postroom's tests run {needed.tested})"


def _key(name: str, needed: Needs, known: Sequence[Credential], env: Mapping[str, str]) -> Finding:
    if (found := keys.stored(needed, known)) is not None:
        return Finding(name, "key", OK, f"credential {found[1]!r} for {keys.host(found[0])}")
    if (form := keys.in_environment(needed, env)) is not None:
        said = f"{form.variable} is set here and not kept yet; spawn asks, or: spawn --store-key"
        return Finding(name, "key", NOTE, said, keys.add_command(form, env))
    said = f"none for {keys.host(needed.keys[0])}"
    return Finding(name, "key", MISSING, said, keys.ways(needed, env))
