"""The words for a frame of the bus."""

from __future__ import annotations

import pytest

from postroom.lines.frames import attempt, frame_words
from postroom.protocol.audit import DENIED, IN, OUT

OWN, BOB = "a" * 32, "b" * 32


def name(uid: str) -> str:
    return {OWN: "@garb", BOB: "@bob"}.get(uid, uid)


@pytest.mark.parametrize(
    "verb, subject, direction, words",
    [
        ("PUB", f"ctl.{OWN}.tasks.open", OUT, "asked the control plane for its tasks"),
        ("PUB", f"ctl.{OWN}.some.thing", OUT, "asked the control plane for some.thing"),
        ("HPUB", f"worker.{BOB}.inbox.{OWN}", OUT, "sent a message to @bob"),
        ("PUB", f"worker.{OWN}.status", OUT, "reported its state"),
        ("HPUB", f"worker.{OWN}.tasks.t1.working", OUT, "said that its task is working"),
        ("HPUB", f"project.shop.feed.{OWN}", OUT, "posted in #shop"),
        ("HMSG", f"worker.{OWN}.inbox.{BOB}", IN, "got a message from @bob"),
        ("PUB", "nothing.known", OUT, ""),
        ("CONNECT", "", OUT, ""),
    ],
)
def test_a_frame_is_said_in_words(verb: str, subject: str, direction: str, words: str):
    assert frame_words(verb, subject, OWN, name, direction=direction) == words


@pytest.mark.parametrize(
    "verb, subject, words",
    [
        ("PUB", f"worker.{BOB}.inbox.{BOB}", "write to somebody else's inbox"),
        ("SUB", f"worker.{BOB}.inbox.*", "read somebody else's inbox"),
        ("HPUB", f"worker.{BOB}.inbox.{OWN}", "send a message to @bob"),
        ("PUB", "$SYS.x", "write to $SYS.x"),
    ],
)
def test_a_refused_frame_says_what_was_tried(verb: str, subject: str, words: str):
    assert frame_words(verb, subject, OWN, name, verdict=DENIED) == f"tried to {words}"
    assert attempt(verb, subject, OWN, name) == f"it tried to {words}"
