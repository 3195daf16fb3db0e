from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput, InvalidName
from postroom.identity import tokens
from tests.identity.stage import ALICE


def test_a_token_is_64_hex_digits_and_never_the_same():
    one, other = tokens.new_token(), tokens.new_token()

    assert re.fullmatch(r"[0-9a-f]{64}", one)
    assert one != other


def test_an_api_key_names_its_agent():
    key = tokens.new_api_key(ALICE)

    assert re.fullmatch(rf"a2a_{ALICE}_[0-9a-f]{{64}}", key)
    assert tokens.api_key_uid(key) == ALICE


@pytest.mark.parametrize("uid", ["", "*", "postroom", "a_b"])
def test_no_api_key_is_made_for_what_is_no_agent(uid: str):
    with pytest.raises(InvalidName):
        tokens.new_api_key(uid)


@given(st.text(max_size=120))
def test_any_other_text_is_no_api_key(text: str):
    with pytest.raises(InvalidInput) as caught:
        tokens.api_key_uid(text)
    assert caught.value.message == "not an API key"


@given(st.text())
def test_a_token_matches_its_own_digest(token: str):
    assert tokens.matches(token, tokens.digest(token))


@given(st.text(), st.text())
def test_a_token_matches_no_other_digest(token: str, other: str):
    assert tokens.matches(token, tokens.digest(other)) == (token == other)


@given(st.text(alphabet=st.characters(), max_size=10))
def test_hostile_text_matches_nothing_and_raises_nothing(text: str):
    assert not tokens.matches(text + "\ud800", text)


def test_a_digest_is_the_sha_256():
    assert tokens.digest("abc") == hashlib.sha256(b"abc").hexdigest()
