"""To which message or task belongs what an agent sends without saying so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from postroom.protocol.verbs import Send
from postroom.sidecar.actions import Actions
from postroom.sidecar.keys import Derivation, Key

pytestmark = pytest.mark.anyio


class Sent:
    """Notes under which key something was sent; also a directory that knows everybody."""

    def __init__(self) -> None:
        self.keys: list[Key] = []

    async def uid_of(self, _address: str) -> str:
        return "a" * 32

    async def message(self, _draft: Any, key: Key) -> str:
        self.keys.append(key)
        return "id"


async def key_while(held: dict[str, bool], task: str = "") -> str:
    """The key of a send while these messages are held (value: it was given up waiting for), and a task worked on."""
    messages = [
        SimpleNamespace(derivation=Derivation(name, redelivered=False), waited=waited)
        for name, waited in held.items()
    ]
    inbox: Any = SimpleNamespace(held=messages)
    at_task = Derivation(f"task/{task}", redelivered=False) if task else None
    unused: Any = None
    program: Any = SimpleNamespace(derivation=lambda: at_task)
    sent: Any = Sent()
    actions = Actions(
        inbox=inbox,
        outgoing=sent,
        directory=sent,
        status=unused,
        engine=unused,
        program=program,
        delegations=unused,
        task_client=unused,
    )
    await actions.send(Send("@bob", "hello"))
    (key,) = sent.keys
    return ":".join(key.text.split(":")[:2]) if key.repeatable else "fresh"


@pytest.mark.requirement("mail-key-once")
@pytest.mark.parametrize(
    "held, task, key",
    [
        ({}, "", "fresh"),
        ({"one": False}, "", "derived:one"),
        ({"one": True}, "", "derived:one"),
        ({"one": True, "two": False}, "", "fresh"),
        ({"one": True, "two": True}, "", "fresh"),
        ({"one": False, "two": False}, "", "fresh"),
        ({}, "t", "derived:task/t"),
        ({"one": True, "two": True}, "t", "derived:task/t"),
        ({"one": False}, "t", "derived:one"),
        ({"one": False, "two": False}, "t", "fresh"),
    ],
)
async def test_what_is_sent_belongs_to_what_the_agent_is_certainly_at_and_else_to_nothing(
    held: dict[str, bool], task: str, key: str
) -> None:
    assert await key_while(held, task) == key
