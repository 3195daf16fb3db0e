"""Commands are declared by the operations that they ask, and in the words of their help."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from postroom import cli
from postroom.cli.declaring import asks, fields_of, parameter
from postroom.cli.root import SUMMARIES, root
from postroom.client.words import every
from postroom.protocol.operations import OPERATIONS
from tests.cli.test_start import leaves

BY_OTHER_MODULES = {
    "alerts.clear_all": "alerts clear",
    "claims.claim": "connect --claim",
    "feeds.happened": "chat",
    "feeds.happens": "chat",
    "feeds.stream": "chat",
    "messages.chat": "chat",
    "terminals.terminal": "attach --raw",
    "workers.spawn": "spawn",
}
"""Operations that a command asks by another module than its own, and that command."""

WITHOUT_COMMAND = {
    "agents.keys": "for who verifies signatures",
    "agents.set_card": "for the agent itself",
    "approvals.pending": "for sidecars",
    "blobs.head": "before an upload",
    "claims.offer": "for agents, by a tool",
    "events.report": "for sidecars",
    "inbox.acknowledge": "for agents; `inbox` marks what it shows",
    "inbox.stream": "for agents; `watch` shows all that comes",
    "metrics.read": "for Prometheus",
    "reports.artifact": "for agents",
    "reports.status": "for agents",
    "room.livez": "for supervisors",
    "room.openapi": "for who writes clients",
    "room.readyz": "for supervisors",
    "sessions.ask": "for `connect run`, as its session",
    "sessions.asked": "for `connect run`, as its session",
    "sessions.end": "for who writes clients; `agents remove` ends one, too",
    "sessions.list": "for who writes clients; `agents` and `status` show them",
    "sessions.note": "for `connect run`",
    "sessions.register": "for `connect run`",
    "sessions.show": "for who writes clients; `agents show` shows it",
    "sessions.stream": "for `connect run`",
    "sessions.withdraw": "for `connect run`, as its session",
    "terminals.printed": "for sidecars",
    "terminals.typed": "for sidecars",
    "workers.card": "for who asks a worker's own server",
}
"""Operations that no command asks, on purpose, and whom they are for."""


def declared() -> Iterator[tuple[str, click.Command, str]]:
    """Each command that asks one operation, with its name and that operation."""
    tops = [(name, root.get_command(click.Context(root), name)) for name in SUMMARIES]
    groups = [(name, top) for name, top in tops if isinstance(top, click.Group)]
    for name, command in [*groups, *leaves()]:
        if operation := getattr(command.callback, "operation", ""):
            yield name, command, operation


def called() -> set[str]:
    """The operations whose methods commands call themselves."""
    names: dict[str, set[str]] = {}
    for operation, words in every():
        names.setdefault(words.name, set()).add(operation)
    found: set[str] = set()
    for file in Path(cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).strip("_").endswith(
                ("client", "other")
            ):
                found |= names.get(node.attr, set())
    return found


def test_each_operation_has_a_command_or_is_on_the_list_of_those_without():
    asked = called() | {operation for _, _, operation in declared()} | set(BY_OTHER_MODULES)

    assert asked | set(WITHOUT_COMMAND) == set(OPERATIONS)
    assert not asked & set(WITHOUT_COMMAND)


def test_a_command_cannot_be_declared_for_an_operation_that_there_is_not():
    def prints(_: Any) -> None:
        """Never called."""

    with pytest.raises(KeyError):
        asks("agents.lose")(prints)


def test_each_parameter_of_a_declared_command_goes_to_its_operation_or_is_printed():
    count = 0
    for name, leaf, operation in declared():
        count += 1
        prints: Any = leaf.callback
        while hasattr(prints, "__wrapped__"):
            prints = prints.__wrapped__
        known = {*fields_of(operation), *prints.__code__.co_varnames, "as_json", "pin_file"}
        known |= {"alert"} if operation == "alerts.clear" else set()
        exposed = {each.name for each in leaf.params if each.expose_value}
        assert exposed <= known, name
    assert count > 20


@pytest.mark.parametrize(
    "text, usage, fields",
    [
        ("ref @NICK", "@NICK", {"required": True, "nargs": 1}),
        ("alert [ID]", "[ID]", {"required": False, "default": ""}),
        ("words [WORD]...", "[WORD]...", {"required": False, "nargs": -1}),
        ("--limit N: Most.", "", {"opts": ["--limit"], "metavar": "N", "default": ""}),
        ("-f --follow: Go on.", "", {"name": "follow", "is_flag": True, "help": "Go on."}),
        ("--for agent @NICK: Whose.", "", {"name": "agent", "opts": ["--for"]}),
        ("--host hosts NAME...: Its.", "", {"name": "hosts", "multiple": True, "metavar": "NAME"}),
        ("--as: How: so.", "", {"name": "as", "help": "How: so."}),
    ],
)
def test_a_text_declares_a_parameter(text: str, usage: str, fields: dict[str, Any]):
    (made,) = click.command()(parameter(text)(lambda: None)).params

    if usage:
        assert made.make_metavar(click.Context(click.Command("some"))) == usage
    assert {name: getattr(made, name) for name in fields} == fields


def test_a_field_of_the_operation_has_its_choices():
    text = "--kind: Only agents of this kind."
    (made,) = click.command()(parameter(text, fields_of("agents.list"))(lambda: None)).params

    assert isinstance(made.type, click.Choice)
    assert tuple(made.type.choices) == ("human", "worker", "external", "service")
