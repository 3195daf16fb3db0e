"""`/spawn`: as `postroom spawn` does it, with a post room that runs. Blocking; it runs in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.errors import PostroomError
from postroom.tui.news import Target
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.tui.typing.commands import Command


def spawn(
    client: Client, command: Command, project: str, pin: str = ""
) -> tuple[str, Target, bool]:
    """Start a worker; returns what there is to say, the worker, and whether it has ended at once.

    Args:
        project: that it joins where the command names none.
        pin: of the person, "" before they were asked.

    Raises:
        PostroomError: as `postroom spawn`.
    """
    from postroom.templates import keys
    from postroom.templates import reading
    from postroom.templates import spawning
    from postroom.view.tasks import accepted_line
    from postroom.view.workers import WAIT, ended, notes, spawned

    remote = not client.server.pid
    said: list[str] = []
    folder = spawning.folder_of(command["workspace"], command["mode"], remote=remote)
    path = reading.located(_home(command["template"]), said.append)
    bundle = reading.read(path)
    values = reading.overrides(command.many.get("set", ()), bundle.text)
    needed = spawning.needs_here(bundle.text, values)
    values |= spawning.program_of(needed, values, command["sandbox"], remote=remote)
    if needed.keys:
        choice = keys.choose(
            needed, values, client.credentials(), lambda *_: bool(command["store"])
        )
        values |= choice.values
        said.append(keys.keep(client, choice))
    reading.check(bundle, values, command["sandbox"])
    worker = spawning.spawn(
        client,
        bundle,
        command["name"].removeprefix("@"),
        project=(command["project"] or project).removeprefix("#"),
        overrides=values,
        sandbox=command["sandbox"],
        isolation=command["isolation"],
        path=str(path.absolute()),
        workspace=folder,
        mode=command["mode"],
        autonomous=bool(command["autonomous"]),
        branches=command.many.get("branches", ()),
        wait=WAIT,
        pin=pin,
    )
    said += [spawned(worker), *notes(worker)]
    error = ended(worker)
    if error is None and command["task"]:
        try:
            given = spawning.give(client, worker, command["task"])
            said += [accepted_line(given)] if given else []
        except (
            PostroomError
        ) as refused:  # the worker is there, so the line is not to be typed again
            error = refused
    if error is not None:
        said += _lines(error)
    text = "\n".join(click.unstyle(line) for line in said if line)
    return text, Target(worker["nick"], worker["uid"]), error is not None


def _lines(error: PostroomError) -> list[str]:
    return [*(f"    | {one_line(line)}" for line in error.details), error.message, error.remedy]


def _home(word: str) -> str:
    """A file's path below the home folder, as a shell would have it."""
    from pathlib import Path

    return str(Path(word).expanduser()) if word.startswith("~") else word
