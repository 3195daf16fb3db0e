"""Which key a worker gets, and who is asked."""

from __future__ import annotations

import sys

import click
import pytest

from postroom.cli import starting
from postroom.cli.starting import Choice, choose
from postroom.errors import InvalidInput
from postroom.protocol.template_needs import CREDENTIAL, KeyForm, Needs

FORM = KeyForm("a", "https://x.example", "X-Key: {secret}", "A_KEY", "a key", {"dummy": "d"})
NEEDED = Needs("agent", "", "", (FORM,), {CREDENTIAL: "", "dummy": ""})
ENV = {"A_KEY": "sk-hidden"}


class Terminal:
    def isatty(self) -> bool:
        return True


@pytest.mark.requirement("egress-key-outside")
@pytest.mark.parametrize("agreed", [True, False])
def test_on_a_terminal_the_person_is_asked_whether_the_key_is_kept(
    monkeypatch: pytest.MonkeyPatch, agreed: bool
):
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return agreed

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(click, "confirm", confirm)
    if agreed:
        choice = choose(NEEDED, {}, [], store=False, env=ENV)
        assert choice == Choice({"dummy": "d", CREDENTIAL: "a"}, FORM, "a")
    else:
        with pytest.raises(InvalidInput) as caught:
            choose(NEEDED, {}, [], store=False, env=ENV)
        assert "sk-hidden" not in caught.value.message + caught.value.remedy
    (text,) = asked
    assert "A_KEY" in text
    assert "x.example" in text
    assert "sk-hidden" not in text


def test_nobody_is_asked_for_a_key_that_is_kept_or_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(starting, "_key_asked", lambda *_: pytest.fail("asked"))
    kept = {"name": "k", "url": "https://x.example/", "header": "x-key: {secret}", "workers": []}
    choice = choose(NEEDED, {}, [kept], store=False, env=ENV)  # ty: ignore[invalid-argument-type]
    assert (choice.values, choice.form) == ({"dummy": "d", CREDENTIAL: "k"}, None)
    choice = choose(NEEDED, {CREDENTIAL: ""}, [], store=True, env=ENV)
    assert (choice.values, choice.form) == ({"dummy": "d"}, None)
    choice = choose(NEEDED, {"dummy": "mine"}, [], store=True, env=ENV)
    assert choice.values == {CREDENTIAL: "a"}


def test_a_template_without_keys_needs_none():
    assert choose(Needs("agent"), {}, [], store=True, env=ENV) == Choice()
