"""Cards of workers: what is built, what an agent may announce, and how cards are found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.directory.cards import (
    ANY_MESSAGE,
    MAX_CARD_BYTES,
    MAX_SKILLS,
    SENDER_TOKEN,
    build_card,
    matches,
    read_card,
    skills_of,
)
from postroom.errors import InvalidInput, InvalidName, MessageTooLarge
from postroom.protocol.limits import MAX_LABEL
from postroom.protocol.template import Template

UID = "a" * 32
OTHER = "b" * 32
READER = Template(
    name="ignored",
    command=("true",),
    description="Reads Python source.",
    skills=("read-python-source",),
    mcps=("github",),
)


def card(template: Template = READER, **changes: Any) -> dict[str, Any]:
    return build_card(UID, "reader", template, version="1") | changes


def read(value: Any) -> dict[str, Any]:
    return read_card(json.dumps(value).encode(), UID, "reader")


@pytest.mark.requirement("a2a-http-card")
def test_a_card_says_what_the_template_says():
    built = card()

    assert (built["name"], built["description"]) == ("reader", "Reads Python source.")
    assert built["supportedInterfaces"] == [
        {
            "url": f"nats://worker.{UID}.rpc",
            "protocolBinding": "NATS",
            "protocolVersion": "1.0",
        }
    ]
    assert [extension["uri"] for extension in built["capabilities"]["extensions"]] == [SENDER_TOKEN]
    assert [(s["id"], s["tags"]) for s in built["skills"]] == [
        ("read-python-source", ["skill"]),
        ("github", ["mcp"]),
    ]


def test_a_template_without_words_has_a_card_without_empty_values():
    built = card(Template(name="x", command=("true",)))

    assert built["description"] == "The worker reader."
    assert built["skills"] == [ANY_MESSAGE]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(TEXTS, st.lists(TEXTS, max_size=5), st.lists(TEXTS, max_size=5))
def test_every_built_card_may_be_announced(description: str, skills: list[str], mcps: list[str]):
    template = Template(
        name="x",
        command=("true",),
        description=description,
        skills=tuple(skills),
        mcps=tuple(mcps),
    )

    assert read(card(template)) == card(template)


@pytest.mark.requirement("a2a-http-card")
def test_what_is_too_much_for_a_card_is_cut_when_it_is_built():
    names = tuple(f"{'s' * 1000}{n}" for n in range(1000)) + tuple(f"s{n}" for n in range(1000))
    built = card(Template(name="x", command=("true",), description="d" * 50_000, skills=names))

    assert len(built["skills"]) == MAX_SKILLS
    assert len(json.dumps(built)) < MAX_CARD_BYTES


@pytest.mark.requirement("a2a-http-card")
def test_a_card_over_the_limit_is_refused():
    with pytest.raises(MessageTooLarge):
        read_card(b" " * (MAX_CARD_BYTES + 1), UID, "reader")


def interface(**changes: str) -> list[dict[str, str]]:
    return [card()["supportedInterfaces"][0] | changes]


FOREIGN: dict[str, tuple[Any, str]] = {
    "another's name": (card(name="lead"), "the card claims the name 'lead'"),
    "another's address": (
        card(supportedInterfaces=interface(url=f"nats://worker.{OTHER}.rpc")),
        f"the card claims the URL 'nats://worker.{OTHER}.rpc'",
    ),
    "an address beside its own": (
        card(supportedInterfaces=interface() + interface(url="https://evil.example")),
        "the card claims the URL 'https://evil.example'",
    ),
    "its address twice": (
        card(supportedInterfaces=interface() * 2),
        "the card has not exactly one interface",
    ),
    "another binding": (
        card(supportedInterfaces=interface(protocolBinding="GRPC")),
        "the card's interface is not NATS 1.0",
    ),
    "a provider": (
        card(provider={"url": "https://x", "organization": "x"}),
        "the card has the field 'provider', which is not for it",
    ),
    "a signature": (
        card(signatures=[]),
        "the card has the field 'signatures', which is not for it",
    ),
    "a link": (
        card(documentationUrl="https://evil.example"),
        "the card has the field 'documentationUrl', which is not for it",
    ),
    "no sender token": (
        card(capabilities={}),
        f"the card does not state the extension {SENDER_TOKEN}",
    ),
}


@pytest.mark.requirement("a2a-http-card")
@pytest.mark.parametrize("claim", FOREIGN)
def test_a_card_that_speaks_for_others_is_refused_with_the_reason(claim: str):
    announced, reason = FOREIGN[claim]

    with pytest.raises(InvalidInput) as refused:
        read(announced)

    assert refused.value.message == reason


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        card(skills="all"),
        card(skills=[]),
        card(skills=[{"id": "a"}]),
        card(skills=[card()["skills"][0]] * (MAX_SKILLS + 1)),
        card(description=7),
        card(description=""),
        card(description="\x1b[2J"),
        card(description="\ud800"),
        card(version="v" * (MAX_LABEL + 1)),
        card(capabilities={"streaming": "yes"}),
        card(defaultInputModes=None),
    ],
)
def test_what_is_no_card_is_refused(value: Any):
    with pytest.raises(InvalidInput):
        read(value)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_card_or_a_typed_error(payload: bytes):
    with pytest.raises(InvalidInput):
        read_card(payload, UID, "reader")


def test_deep_nesting_is_a_typed_error():
    with pytest.raises(InvalidInput):
        read_card(b"[" * 30_000, UID, "reader")


def test_no_card_is_built_for_what_is_no_address():
    with pytest.raises(InvalidName):
        build_card("*", "reader", READER, version="1")


@pytest.mark.requirement("task-skill-chosen")
@pytest.mark.parametrize(
    "skill, text, found",
    [
        ("", "", True),
        ("read-python-source", "", True),
        ("Read Python Source", "", True),
        ("MCP", "", True),
        ("read", "", False),
        ("", "PYTHON", True),
        ("github", "source", True),
        ("github", "cobol", False),
    ],
)
def test_a_card_is_found_by_its_skills_and_words(skill: str, text: str, found: bool):
    assert matches(card(), skill=skill, text=text) is found
    assert skills_of(card()) == ["read-python-source", "github"]
