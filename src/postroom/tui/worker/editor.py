"""A file as a worker has it, in the editor of the person.

A copy: the folder of a worker is its own, and what lies there may be a link elsewhere by the time an editor writes it.
"""

from __future__ import annotations

import re
import signal
import tempfile
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click
from textual.app import SuspendNotSupported

from postroom.errors import EnvironmentFault, InvalidInput, PostroomError
from postroom.tui.news import Said, trouble
from postroom.tui.worker.changes import files_of
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.tui.news import Target
    from postroom.tui.port import ScreenPort


async def show(app: ScreenPort, target: Target, name: str) -> None:
    """Open a copy of the file `name` of a worker; what is changed there goes nowhere, and that is said."""
    said = one_line(name, 200)
    app.post_message(Said(f"fetching {said} ..."))
    try:
        text = await app.calls.run(partial(_text, app.client, target.uid, name))
        _edit(app, PurePosixPath(name).name, text)
    except PostroomError as error:
        app.post_message(trouble(error))
    else:
        copy = f"that was a copy of {said} as {one_line(str(target))} has it"
        app.post_message(Said(f"{copy}: w says what to change, m takes it over"))


def _text(client: Client, uid: str, name: str) -> str:
    """The file as the worker has it.

    Raises:
        InvalidInput: there are no lines to show.
    """
    found = client.diff(uid, [name], whole=True)
    if found["cut"]:
        raise InvalidInput("the file is too large", remedy="look at the branch with git")
    lines = [line for file in files_of(found["text"]) for line in file.now]
    if not lines:
        raise InvalidInput("it is removed, empty, or no text")
    return "\n".join(lines) + "\n"


def _edit(app: ScreenPort, name: str, text: str) -> None:
    with tempfile.TemporaryDirectory(prefix="postroom-") as folder:
        # The name is a worker's word, and programs take some for more than a name.
        copy = Path(folder, re.sub(r"[^\w.-]|^[.-]+", "_", name)[-100:] or "file")
        copy.write_text(text, encoding="utf-8")
        copy.chmod(0o400)
        try:
            with app.suspend():
                # Ctrl-C is the editor's; a program that is started anew has the usual again.
                before = signal.signal(signal.SIGINT, lambda *_: None)
                try:
                    click.edit(filename=str(copy))
                finally:
                    signal.signal(signal.SIGINT, before)
        except SuspendNotSupported as error:
            raise EnvironmentFault("no editor can be shown here") from error
        except click.ClickException as error:
            raise EnvironmentFault(
                f"the editor failed: {one_line(error.message, 200)}",
                remedy="EDITOR names another one",
            ) from error
