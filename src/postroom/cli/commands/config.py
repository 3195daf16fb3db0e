"""`postroom config`: what was chosen for a post room, and where."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.completion import settings
from postroom.cli.declaring import Answer, answers, parameter
from postroom.cli.options import state_folder, state_option
from postroom.cli.output import print_json, print_table
from postroom.cli.settings_file import change_file
from postroom.errors import (
    EnvironmentFault,
    InvalidInput,
    NotFound,
    NotRunning,
    PostroomError,
)
from postroom.lines.text import Cell

if TYPE_CHECKING:
    from postroom.settings.option import Option
    from postroom.settings.sources import ChosenValue

EPILOG = """\b
A flag of `up` counts first, then the environment, then postroom.toml in the
state folder, then the user's postroom.toml, then the default.
"""

USER = "--user: The user's file, for all post rooms, instead of this one's."
KEY = parameter("key", shell_complete=settings)


@click.group("config", epilog=EPILOG)
@state_option(org=False, here=True)
def command() -> None:
    """Show and change settings of the post room on the state folder; it need not run."""


@command.command("list", short_help="Show every setting with its value and where that comes from.")
@answers(org=False, here=True)
def list_() -> Answer:
    """Show every setting with its value and where that comes from."""
    from postroom.settings.sources import DEFAULT, find

    found = find(state_folder())
    rows = [
        [
            Cell(one.option.key, dim=one.source == DEFAULT),
            Cell(one.text or "-", dim=one.source == DEFAULT),
            Cell(one.source, dim=one.source == DEFAULT),
        ]
        for one in found
    ]
    record = {"settings": [_record(one) for one in found]}
    return record, lambda: print_table(("SETTING", "VALUE", "FROM"), rows, cut=("VALUE",))


@command.command("get", short_help="Print the value of one setting.")
@answers(KEY, org=False, here=True)
def get(key: str) -> Answer:
    """Print the value of the setting KEY, an empty line if there is none."""
    from postroom.settings.options import option
    from postroom.settings.sources import find

    wanted = option(key)
    (found,) = [one for one in find(state_folder()) if one.option is wanted]
    return _record(found), found.text if found.plain is not None else ""


@command.command("set", short_help="Choose a value for one setting.")
@answers(KEY, parameter("value [VALUE]", default=None), USER, org=False, here=True)
def set_(key: str, value: str | None, user: bool, as_json: bool) -> None:
    """Choose VALUE for the setting KEY; it counts from the next `up`.

    Parts of a list have commas between them. A secret comes from standard input or a prompt.
    """
    from postroom.settings.option import ValueKind
    from postroom.settings.options import option

    wanted = option(key)
    text = _secret(wanted, value) if wanted.secret else value
    if text is None:
        raise InvalidInput(f"{key} needs a value", remedy=f"postroom config set {key} VALUE")
    if wanted.kind is ValueKind.FILE and text:
        text = str(Path(text).absolute())  # a settings file has a folder of its own
    made = wanted.from_text(text, key)
    _check_start(wanted, text)
    plain = (
        list(made)
        if wanted.kind is ValueKind.LIST
        else text
        if wanted.kind is ValueKind.FILE
        else made
    )
    path = _file(user)
    change_file(path, key, plain)
    if as_json:
        print_json({"set": key, "file": str(path)})
    else:
        click.echo(f"{key} is set in {path}{_when()}")
    if os.environ.get(wanted.variable):
        click.echo(f"note: {wanted.variable} is set here, too, and counts first", err=True)


@command.command("unset", short_help="Forget what was chosen for one setting.")
@answers(KEY, USER, org=False, here=True)
def unset(key: str, user: bool) -> Answer:
    """Forget what the file chooses for the setting KEY."""
    from postroom.settings.options import option
    from postroom.settings.sources import entries, read

    option(key)
    path = _file(user)
    if key not in entries(read(path), path):
        raise NotFound(f"{key} is not set in {path}", remedy="postroom config list")
    change_file(path, key, None)
    return {"unset": key, "file": str(path)}, f"{key} is no longer set in {path}{_when()}"


def _check_start(wanted: Option, text: str) -> None:
    """Refuse a value with which the next `up` would end; what is wrong with other settings is not its fault."""
    from postroom.control.settings_check import check_settings
    from postroom.settings.sources import load

    def why(flags: dict[str, str]) -> PostroomError | None:
        try:
            check_settings(load(state_folder(), flags))
        except PostroomError as error:
            return error
        return None

    wrong = why({wanted.field: text})
    if wrong is not None:
        before = why({})
        if before is None or before.message != wrong.message:
            raise wrong


def _record(found: ChosenValue) -> dict[str, Any]:
    return {
        "key": found.option.key,
        "value": found.plain,
        "source": found.source,
        "variable": found.option.variable,
        "flag": found.option.flag,
        "expected": found.option.expected,
        "meaning": found.option.meaning,
    }


def _file(user: bool) -> Path:
    from postroom.settings import SETTINGS_FILE
    from postroom.settings.sources import user_file

    path = user_file() if user else state_folder() / SETTINGS_FILE
    if path is None:
        raise EnvironmentFault("there is no home folder for the user's file", remedy="set HOME")
    return path


def _when() -> str:
    """Who runs has read its settings already."""
    from postroom.client.locate import locate

    try:
        locate(state_folder())
    except (NotRunning, EnvironmentFault):
        return ""
    return "; the post room that runs takes it at its next start: postroom down, postroom up"


def _secret(wanted: Option, value: str | None) -> str:
    if value is not None:
        raise InvalidInput(
            f"{wanted.key} is a secret, which others can read in a command line",
            remedy=f"postroom config set {wanted.key} < FILE",
        )
    if sys.stdin.isatty():
        return click.prompt("Secret", hide_input=True, err=True).strip()
    return sys.stdin.readline().strip()
