"""What a remedy tells a person to type can be typed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

import postroom
from postroom.cli.root import root

SOURCE = Path(postroom.__file__).parent
OTHERS = {
    "--user": "systemctl and journalctl",
    "--global": "git config",
}
"""Options of other programs that remedies name."""
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _options(below, click.Context(below, context))


GIT = re.compile(r"\bgit [^;,]*")
"""A command of git in a remedy, with options of its own."""


def _remedies() -> Iterator[tuple[str, str]]:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "remedy":
                for part in ast.walk(node.value):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield f"{path.name}:{node.value.lineno}", GIT.sub("", part.value)


def test_every_option_that_a_remedy_names_exists():
    known = {*_options(root, click.Context(root)), *OTHERS}
    unknown = {
        (place, option)
        for place, text in _remedies()
        for option in OPTION.findall(text)
        if option not in known
    }

    assert not unknown


def test_no_remedy_leads_to_verbose_which_most_commands_do_not_have():
    assert not [place for place, text in _remedies() if "--verbose" in text]
