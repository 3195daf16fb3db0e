"""To which message or task belongs what an agent prints: its key, and its order among other lines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from postroom.errors import NotFound
from postroom.protocol.verbs import (
    Complete,
    Delegate,
    Find,
    Post,
    Progress,
    Reply,
    Seen,
    Send,
    SetStatus,
)
from postroom.sidecar.keys import Derivation, Owner
from postroom.sidecar.program import Ownership


class Program:
    """A program that works on at most one task."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.at_work = Derivation(f"task/{task}", redelivered=False) if task else None
        self.former: tuple[str, ...] = ()

    def derivation(self, task_id: str = "") -> Derivation | None:
        return self.at_work if task_id in ("", self.task) else None

    def had(self, task_id: str) -> bool:
        return task_id in self.former


class Held:
    """An inbox whose agent holds some messages (value: it was given up waiting for)."""

    def __init__(self, held: dict[str, bool]) -> None:
        self.held = [
            SimpleNamespace(
                message=SimpleNamespace(id=name),
                derivation=Derivation(name, redelivered=False),
                set_aside=set_aside,
                begun=True,
            )
            for name, set_aside in held.items()
        ]
        self.confirmed: tuple[str, ...] = ()

    def find(self, message_id: str) -> Any:
        return next((each for each in self.held if each.message.id == message_id), None)

    def sender_of(self, message_id: str) -> str:
        if message_id not in self.confirmed:
            raise NotFound("no such message")
        return "alice"


def ownership(held: dict[str, bool], task: str = "") -> tuple[Ownership, Any, Any]:
    inbox: Any = Held(held)
    program: Any = Program(task)
    return Ownership(inbox, program), inbox, program


def key_of(owner: Owner) -> str:
    return owner.derivation.message if owner.derivation else "fresh"


@pytest.mark.requirement("bus-ack-means-disk")
@pytest.mark.parametrize(
    "held, task, key",
    [
        ({}, "", "fresh"),
        ({"one": False}, "", "one"),
        ({"one": True}, "", "one"),
        ({"one": True, "two": False}, "", "fresh"),
        ({"one": True, "two": True}, "", "fresh"),
        ({"one": False, "two": False}, "", "fresh"),
        ({}, "t", "task/t"),
        ({"one": True, "two": True}, "t", "task/t"),
        ({"one": False}, "t", "fresh"),
        ({"one": False, "two": False}, "t", "fresh"),
    ],
)
@pytest.mark.parametrize("said", [Send("@bob", "hi"), Post("hi"), Delegate("@bob", "", "hi")])
def test_what_names_nothing_belongs_to_what_the_agent_is_certainly_at_and_else_to_nothing(
    held: dict[str, bool], task: str, key: str, said: Any
) -> None:
    owners, _, _ = ownership(held, task)

    assert key_of(owners.of(said)) == key_of(owners.of_line(said)) == key


@pytest.mark.requirement("bus-ack-means-disk")
def test_what_names_a_message_or_a_task_belongs_to_that_one_whatever_else_is_held() -> None:
    owners, inbox, program = ownership({"one": False, "two": False}, "t")
    inbox.confirmed, program.former = ("old",), ("done",)

    found = {name: owners.of_line(Send("@bob", "hi", re=name)) for name in ("one", "two", "t")}
    assert {name: key_of(owner) for name, owner in found.items()} == {
        "one": "one",
        "two": "two",
        "t": "task/t",
    }
    # What cannot come again gets no key of its own a second time: the numbers of its records are forgotten.
    for name in ("old", "done"):
        owner = owners.of_line(Send("@bob", "hi", re=name))
        assert (key_of(owner), owner.fault) == ("fresh", None)
    strange = owners.of_line(Send("@bob", "hi", re="strange"))
    assert isinstance(strange.fault, NotFound)
    assert "'strange'" in str(strange.fault)
    with pytest.raises(NotFound):
        owners.of(Send("@bob", "hi", re="strange"))


@pytest.mark.parametrize("last", [Reply("one", "yes"), Seen("one")])
def test_what_follows_the_last_word_on_a_message_belongs_to_the_other_one_unless_that_was_refused(
    last: Any,
) -> None:
    owners, _, _ = ownership({"one": False, "two": False})
    ended = owners.of_line(last)
    assert key_of(owners.of_line(Send("@bob", "hi"))) == "two"

    owners.goes_on(last, ended)

    assert key_of(owners.of_line(Send("@bob", "hi"))) == "fresh"


def test_what_follows_the_end_of_a_task_does_not_belong_to_it() -> None:
    owners, _, _ = ownership({}, "t")
    owners.of_line(Progress("", "half"))
    assert key_of(owners.of_line(Send("@bob", "hi"))) == "task/t"
    owners.of_line(Complete("", "done"))

    assert owners.of_line(Send("@bob", "hi")) == Owner()


def test_lines_about_one_thing_have_one_owner_and_questions_wait_for_nothing() -> None:
    owners, _, _ = ownership({"one": False}, "t")

    def names(*said: Any) -> set[str]:
        return {owners.of_line(each).name for each in said}

    assert names(Send("@bob", "hi", re="one"), Reply("one", "yes"), Seen("one")) == {"one"}
    assert names(Progress("", "x"), Complete("t", ""), Post("hi", re="t")) == {"task"}
    assert names(Find(), SetStatus("idle")) == {"find", "status"}
