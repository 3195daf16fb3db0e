"""Signatures of cards: who can check them, and what breaks them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from postroom.directory.card_signatures import canonical, sign_card, verify_card
from postroom.errors import InvalidInput, Unauthorized
from postroom.identity.cardkey import CardKey, from_text, to_text, verify

KEY = CardKey.generate()
CARD: dict[str, Any] = {"name": "reader", "description": "Liest Quelltext — 読む 😀", "skills": []}


@pytest.mark.requirement("a2a-http-card")
def test_a_signed_card_verifies_with_the_public_key_alone():
    signed = sign_card(CARD, KEY)

    assert verify_card(json.loads(json.dumps(signed)), [KEY.jwk]) == CARD
    signature = signed["signatures"][0]
    header = json.loads(from_text(signature["protected"]))
    assert header == {"alg": "ES256", "kid": KEY.kid, "typ": "JOSE"}
    message = f"{signature['protected']}.{to_text(canonical(CARD))}".encode()
    assert verify(KEY.jwk, message, from_text(signature["signature"]))


def test_the_same_card_has_the_same_signature():
    assert sign_card(CARD, KEY) == sign_card(CARD, KEY)


def test_signing_again_replaces_the_signatures():
    again = sign_card(sign_card(CARD, CardKey.generate()), KEY)

    assert len(again["signatures"]) == len(sign_card(CARD, KEY)["signatures"])
    assert verify_card(again, [KEY.jwk]) == CARD


@pytest.mark.requirement("a2a-http-card")
@pytest.mark.parametrize(
    "forge",
    [
        lambda card: card | {"name": "lead"},
        lambda card: card | {"provider": {"organization": "x"}},
        lambda card: {k: v for k, v in card.items() if k != "description"},
        lambda card: card | {"signatures": []},
        lambda card: {k: v for k, v in card.items() if k != "signatures"},
        lambda card: sign_card(card, CardKey.generate()),
        lambda card: card | {"signatures": [card["signatures"][0] | {"signature": "AAAA"}]},
        lambda card: card | {"signatures": [unsigned_header("none")]},
        lambda card: card | {"signatures": [unsigned_header("HS256")]},
    ],
)
def test_a_changed_card_and_a_foreign_signature_are_refused(forge: Any):
    with pytest.raises(Unauthorized):
        verify_card(forge(sign_card(CARD, KEY)), [KEY.jwk])


def test_empty_members_are_signed_and_a_reader_who_drops_them_finds_a_signature_too():
    signed = sign_card(CARD, KEY)
    read = {name: value for name, value in signed.items() if name != "skills"}

    assert verify_card(signed, [KEY.jwk]) == CARD
    assert verify_card(read, [KEY.jwk]) == {k: v for k, v in CARD.items() if k != "skills"}
    # What was added without a signature does not come out.
    assert "provider" not in verify_card(signed | {"provider": {}}, [KEY.jwk])
    beside = verify_card(signed | {"preferredTransport": "GRPC"}, [KEY.jwk])
    assert "preferredTransport" not in beside


def test_a_card_whose_members_are_of_the_wrong_kind_is_no_signed_card():
    wrong = {
        "url": "x",
        "additionalInterfaces": 1,
        "capabilities": "x",
        "supportsAuthenticatedExtendedCard": True,
        "securitySchemes": {"a": {"type": []}},
    }
    with pytest.raises(Unauthorized):
        verify_card(wrong, [KEY.jwk])


def unsigned_header(algorithm: str) -> dict[str, str]:
    header = to_text(json.dumps({"alg": algorithm, "kid": KEY.kid}).encode())
    return {"protected": header, "signature": ""}


@pytest.mark.parametrize(
    "signatures",
    [
        "x",
        [1],
        [{}],
        [{"protected": "!", "signature": "AA"}],
        [{"protected": to_text(b"[]"), "signature": ""}],
    ],
)
def test_a_malformed_signature_is_a_typed_error(signatures: Any):
    with pytest.raises(InvalidInput):
        verify_card(CARD | {"signatures": signatures}, [KEY.jwk])


def test_the_example_of_the_jws_standard_verifies():
    # RFC 7515, appendix A.3.
    jwk = {
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    }
    signed = (
        "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19"
        "yb290Ijp0cnVlfQ"
    )
    signature = (
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    )

    assert verify(jwk, signed.encode(), from_text(signature))
    assert not verify(jwk, signed.encode() + b".", from_text(signature))


@pytest.mark.parametrize("jwk", [{}, {"kty": "OKP"}, KEY.jwk | {"x": KEY.jwk["y"]}])
def test_what_is_no_key_is_refused(jwk: dict[str, str]):
    with pytest.raises(InvalidInput):
        verify(jwk, b"", b"")


def test_a_key_outlives_its_text_and_does_not_show_it():
    again = CardKey.from_secret(KEY.secret)

    assert again.jwk == KEY.jwk
    assert KEY.secret not in repr(KEY)
    assert KEY.secret not in KEY.jwk.values()


@pytest.mark.parametrize("text", ["", "!", "AA", "A" * 43])
def test_what_is_no_private_value_is_refused_without_being_repeated(text: str):
    with pytest.raises(InvalidInput) as refused:
        CardKey.from_secret(text if text != "AA" else to_text(b"\xff" * 32))

    assert "\xff" not in str(refused.value)
