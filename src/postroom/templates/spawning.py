"""What a spawn needs of this machine: the template's program, the folder to work on, a free nick."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroom.errors import InvalidInput, NameTaken, PostroomError
from postroom.protocol.egress import EgressRule
from postroom.protocol.template import parse_template
from postroom.protocol.template_needs import PROGRAM, Needs, needs

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient
    from postroom.protocol.shapes import Task, Worker
    from postroom.templates.reading import Bundle

MOST_OF_ONE = 50
"""Workers of one coding agent that get a number as their nick's end."""


def program_of(
    needed: Needs, values: Mapping[str, str], sandbox: str, *, remote: bool
) -> dict[str, str]:
    """The values for the place of a template's program.

    Args:
        remote: the post room runs on another machine.

    Raises:
        NotFound: the program is not installed.
        InvalidInput: it cannot be looked for.
    """
    found: dict[str, str] = {}
    if needed.program and PROGRAM not in values:
        if sandbox == "opensandbox":
            found[PROGRAM] = needed.program  # in the image's search path
        elif remote:
            raise InvalidInput(
                f"where {needed.program!r} is installed on the post room's machine is not known here",
                remedy=f"--set {PROGRAM}=PATH, or spawn it there",
            )
    if sandbox != "opensandbox" and not remote:
        from postroom.templates.programs import program_values

        found |= program_values(needed, values)
    return found


def needs_here(text: str, values: dict[str, str], env: Mapping[str, str] | None = None) -> Needs:
    """The needs of a template with the model that the environment names, whose place is put into `values`.

    Raises:
        InvalidInput: it names none that can be let out to.
    """
    values |= model_of(needs(text, values), values, env)
    return needs(text, values)


def model_of(
    needed: Needs, values: Mapping[str, str], env: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The values for the place of a template's model, where the program's own variable names another than the usual.

    Without them a key that is for that place would be sent to the usual one.

    Args:
        values: that a person has given; with a place of theirs the variable does not count.

    Raises:
        InvalidInput: the variable has no URL that can be let out to.
    """
    named = (os.environ if env is None else env).get(needed.base, "").strip()
    places = {"scheme", "host", "path"} & set(needed.parameters)
    if not named or not {"scheme", "host"} <= places or {"scheme", "host"} & set(values):
        return {}
    try:
        rule = EgressRule.parse(named)
    except PostroomError as error:
        raise InvalidInput(
            f"{needed.base} names no place that a rule can let a worker out to",
            remedy=f"a plain URL, such as https://llm.example/v1; or: unset {needed.base}",
        ) from error
    path = rule.path.rstrip("/")
    place = str(EgressRule(rule.scheme, rule.host, rule.port)).rpartition("://")[2].rstrip("/")
    found = {"scheme": rule.scheme, "host": place if "path" in places else f"{place}{path}"}
    return found | ({"path": path} if "path" in places else {})


def folder_of(workspace: str, mode: str | None, *, remote: bool) -> str:
    """The absolute path of the folder to work on, "" for none; refused where the post room could not see it.

    Raises:
        InvalidInput: it is no folder, or one of another machine, or `mode` is for none.
    """
    if not workspace:
        if mode:
            raise InvalidInput(
                "--as says how to work on a folder", remedy="name it: --workspace DIR"
            )
        return ""
    if remote:
        raise InvalidInput(
            "a worker of a post room on another machine cannot work on a folder of this one",
            remedy="spawn it there, where the folder is",
        )
    folder = Path(workspace).expanduser().absolute()
    if not folder.is_dir():
        raise InvalidInput(
            f"{folder} is not a folder", remedy="name one that exists: --workspace DIR"
        )
    return str(folder)


async def give(client: AsyncClient, worker: Worker, task: str) -> Task | None:
    """Give a worker that was just started its first task; None for no text, or for a worker that has ended."""
    if not task.strip() or worker.get("started", True) is False:
        return None
    return await client.delegate(task, to=worker["uid"])


async def spawn(client: AsyncClient, bundle: Bundle, name: str, **said: Any) -> Worker:
    """Spawn a worker; the second one of a coding agent gets the nick `claude-2`, if no other was asked for."""
    try:
        return await client.spawn(bundle.text, files=bundle.files, name=name, **said)
    except NameTaken:
        if name or not needs(bundle.text).program:
            raise
    nick = parse_template(bundle.text, said["overrides"]).name
    for number in range(2, MOST_OF_ONE):
        with suppress(NameTaken):
            return await client.spawn(
                bundle.text, files=bundle.files, name=f"{nick}-{number}", **said
            )
    raise NameTaken(f"there are {MOST_OF_ONE} of @{nick}", remedy="choose a nick: --name NICK")
