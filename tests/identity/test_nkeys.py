from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput
from postroom.identity import nkeys
from postroom.identity.nkeys import KeyPair, Kind

KEYS = st.binary(min_size=32, max_size=32)
KINDS = st.sampled_from(list(Kind))
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

# The pair of the NATS documentation's page about NKey authentication.
KNOWN_SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
KNOWN_PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def test_a_published_seed_gives_its_published_key():
    key = KeyPair.from_seed(KNOWN_SEED)

    assert (key.kind, key.public, key.seed) == (Kind.USER, KNOWN_PUBLIC, KNOWN_SEED)


@given(KINDS, KEYS)
def test_a_public_key_survives_its_text_form(kind: Kind, raw: bytes):
    assert nkeys.decode_public(nkeys.encode_public(kind, raw)) == (kind, raw)


@given(KINDS, KEYS)
def test_a_seed_survives_its_text_form(kind: Kind, raw: bytes):
    assert nkeys.decode_seed(nkeys.encode_seed(kind, raw)) == (kind, raw)


@given(KINDS, KEYS)
def test_the_first_letters_say_what_a_key_is_for(kind: Kind, raw: bytes):
    letter = kind.name[0]

    assert nkeys.encode_public(kind, raw)[0] == letter
    assert nkeys.encode_seed(kind, raw)[:2] == f"S{letter}"


@given(KINDS, KEYS, st.integers(0, 55), st.sampled_from(ALPHABET))
def test_one_wrong_character_is_noticed(kind: Kind, raw: bytes, place: int, letter: str):
    text = nkeys.encode_public(kind, raw)
    wrong = text[:place] + letter + text[place + 1 :]

    if wrong != text:
        with pytest.raises(InvalidInput):
            nkeys.decode_public(wrong)


@given(st.text(max_size=80))
def test_any_other_text_is_refused_without_being_repeated(text: str):
    for decode in (nkeys.decode_public, nkeys.decode_seed):
        with pytest.raises(InvalidInput) as caught:
            decode(text)
        assert str(caught.value) in {
            "not an NKey: it is not base32",
            "not an NKey: the checksum is wrong",
        }


@pytest.mark.parametrize(
    "decode, text", [(nkeys.decode_public, KNOWN_SEED), (nkeys.decode_seed, KNOWN_PUBLIC)]
)
def test_a_seed_is_no_public_key_and_a_public_key_no_seed(
    decode: Callable[[str], object], text: str
):
    with pytest.raises(InvalidInput):
        decode(text)


def test_a_key_of_an_unknown_kind_is_refused():
    server = nkeys._to_text(bytes([13 << 3]) + bytes(32))

    with pytest.raises(InvalidInput, match="operator, account or user"):
        nkeys.decode_public(server)


@given(st.binary(max_size=64))
def test_a_signature_is_verified_by_the_public_key_alone(message: bytes):
    key = KeyPair.from_seed(KNOWN_SEED)
    signature = key.sign(message)

    assert nkeys.verify(KNOWN_PUBLIC, message, signature)
    assert not nkeys.verify(KNOWN_PUBLIC, message + b"x", signature)
    assert not nkeys.verify(KeyPair.generate(Kind.USER).public, message, signature)


def test_generated_keys_differ():
    assert KeyPair.generate(Kind.USER).seed != KeyPair.generate(Kind.USER).seed


def test_a_key_does_not_show_its_seed():
    key = KeyPair.generate(Kind.ACCOUNT)

    assert key.seed not in repr(key)
    assert key.public in repr(key)
