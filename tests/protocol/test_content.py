"""What somebody says: parts, subject, thread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput
from postroom.protocol.content import SUBJECT, Content, content, parts_of, subject_of
from postroom.protocol.limits import MAX_PARTS

FILE = {"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"}
DATA = {"data": {"a": [1, None]}, "metadata": {"x": 1}, "of-the-future": True}

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


def test_a_content_comes_back_from_its_message():
    said = Content.given("look", [FILE, DATA], subject="Report", thread="t1")

    message = said.message("m1", "ROLE_USER")

    assert message == {
        "messageId": "m1",
        "role": "ROLE_USER",
        "parts": [{"text": "look"}, FILE, DATA],
        "contextId": "t1",
        "metadata": {SUBJECT: "Report"},
    }
    assert Content.of(message) == said
    assert said.text == "look"


def test_a_text_stands_for_a_content_of_one_part():
    assert content("hello") == Content(({"text": "hello"},))


@pytest.mark.parametrize(
    "said, fault",
    [
        (Content(()), "needs a text, data or a file"),
        (Content.of_text(" \n"), "needs a text, data or a file"),
        (Content(({"text": "x"}, {"text": "x", "url": "y"})), "part 2 needs exactly one of"),
        (Content(({"metadata": {}},)), "part 1 needs exactly one of"),
        (Content(({"raw": "not base64!"},)), "part 1 has a raw that is not base64"),
        (Content(({"url": ""},)), "part 1 has a url that is empty"),
        (Content(({"data": 1, "filename": "x" * 201},)), "filename of more than 200"),
        (Content(({"data": 1, "mediaType": 5},)), "mediaType that is not a text"),
        (Content(({"data": 1, "metadata": []},)), "metadata that are not an object"),
        (Content(({"data": 1},) * (MAX_PARTS + 1)), f"at most {MAX_PARTS} parts"),
        (Content.of_text("x", subject="two\nlines"), "one line"),
        (Content.of_text("x", subject="\x1b[31mred"), "one line"),
        (Content.of_text("x", thread="x" * 257), "256"),
    ],
)
def test_what_is_malformed_is_refused_by_name(said: Content, fault: str):
    with pytest.raises(InvalidInput, match=fault):
        said.check()


def test_data_that_is_null_is_data():
    assert not Content(({"data": None},)).empty


@given(st.dictionaries(st.sampled_from(["parts", "metadata", "contextId"]), json) | st.builds(dict))
def test_a_message_of_anybody_gives_a_content(message: dict[str, object]):
    said = Content.of(message)

    assert "\n" not in said.subject
    assert parts_of(said.message("m")) == [dict(part) for part in said.parts]


@given(json)
def test_metadata_of_anybody_give_a_subject(metadata: object):
    assert isinstance(subject_of({"metadata": metadata}), str)
