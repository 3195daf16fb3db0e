"""The plain copy of the table of operations, and the methods of the client that are made from it."""

from __future__ import annotations

from typing import Any, cast

from postroom.client.calls import STREAM
from postroom.client.http import AsyncClient, Client
from postroom.client.words import WORDS, every
from postroom.protocol.operations import OPERATIONS
from tools import operations

ONLY_FOR_TASKS = {"terminal", "terminal_output"}
"""A thread has `transport.websocket` for a terminal."""


def test_the_plain_copy_of_the_table_is_as_the_api_has_it():
    written = operations.TABLE.read_text(encoding="utf-8")
    assert operations.written_table() == written, "stale; write it: python -m tools.operations"


def test_the_signatures_of_the_client_are_as_the_table_and_its_words_have_them():
    written = operations.STUB.read_text(encoding="utf-8")
    assert operations.written_stub() == written, "stale; write it: python -m tools.operations"


def test_each_operation_has_a_method_and_no_method_is_without_one():
    assert set(WORDS) == set(OPERATIONS)
    made = [words.name for _, words in every() if words.made]
    assert len(made) == len(set(made))
    for _, words in every():
        assert callable(getattr(AsyncClient, words.name))


def test_both_clients_have_the_same_methods():
    def methods(client: type) -> set[str]:
        return {name for name in dir(client) if not name.startswith("_")}

    assert methods(AsyncClient) - methods(Client) == ONLY_FOR_TASKS
    assert methods(Client) - methods(AsyncClient) == {"server"}


def test_the_words_name_arguments_that_their_operation_has():
    for operation, words in every():
        row = cast("dict[str, Any]", OPERATIONS[operation])
        fields = {name for place in ("query", "body") for name, *_ in row.get(place, ())}
        fields |= {"content"} & set(row)
        arguments = fields - set(words.called.values()) | set(words.called)
        assert set(words.called.values()) <= fields
        arguments |= {*STREAM} if "events" in row else set()
        assert {*words.takes.split(), *words.empty, *words.always.split()} <= arguments
        assert {*words.checked.split()} <= arguments
        assert set(words.fixed) <= fields
        assert {words.unless, words.waits} - {""} <= fields
