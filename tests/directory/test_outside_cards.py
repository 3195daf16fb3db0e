"""What a person's card may say of an agent that Postroom does not run."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.directory.cards import SENDER_TOKEN, outside_card, read_given
from postroom.errors import InvalidInput, MessageTooLarge
from postroom.protocol.limits import MAX_CARD_BYTES

UID = "ab" * 16
SKILL = {"id": "translate", "name": "translate", "description": "Translates.", "tags": ["text"]}


def card(**given: Any) -> dict[str, Any]:
    return outside_card(UID, "otto", "external", read_given(given, "", "otto"), version="1")


def test_without_a_file_the_card_says_that_it_takes_messages():
    made = card()
    assert (made["name"], made["description"]) == ("otto", "The external agent otto.")
    assert [skill["id"] for skill in made["skills"]] == ["messages"]
    (interface,) = made["supportedInterfaces"]
    assert interface["url"] == f"nats://worker.{UID}.inbox"
    assert made["capabilities"]["extensions"][0]["uri"] == SENDER_TOKEN


def test_what_the_file_says_of_the_agent_is_taken():
    made = card(name="otto", description="Knows words.", version="7", skills=[SKILL])
    assert (made["description"], made["version"], made["skills"]) == ("Knows words.", "7", [SKILL])


def test_a_card_that_was_served_may_be_given_back():
    served = card(skills=[SKILL]) | {"signatures": [{"protected": "x", "signature": "y"}]}
    assert read_given(served, UID, "otto")["skills"] == [SKILL]


@pytest.mark.parametrize(
    "given, says",
    [
        ({"name": "maria"}, "claims the name 'maria'"),
        ({"supportedInterfaces": [{"url": "https://elsewhere"}]}, "claims an address"),
        ({"capabilities": {"pushNotifications": True}}, "claims capabilities"),
        ({"provider": {"organization": "x"}}, "has the field 'provider'"),
        ({"securitySchemes": {}}, "has the field 'securitySchemes'"),
        ({"skills": []}, "is not a list of 1 to"),
        ({"skills": [SKILL | {"tags": "text"}]}, "tags is not a list"),
        ({"description": "a\u202eb"}, "nobody can see"),
        ({"description": 7}, "is not a text"),
    ],
)
@pytest.mark.requirement("a2a-http-card")
def test_a_card_that_speaks_for_others_or_is_malformed_is_refused(given: dict[str, Any], says: str):
    with pytest.raises(InvalidInput, match=says):
        read_given(given, "", "otto")


def test_the_address_of_another_is_refused():
    served = outside_card("cd" * 16, "otto", "external", {}, version="1")
    with pytest.raises(InvalidInput, match="claims an address"):
        read_given(served, UID, "otto")


def test_a_card_over_the_limit_is_refused():
    with pytest.raises(MessageTooLarge):
        read_given({"description": "x" * MAX_CARD_BYTES}, "", "otto")
