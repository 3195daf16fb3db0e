"""Signatures of Agent Cards: JWS over canonical JSON, its payload left out (A2A 1.0, section 8.4; RFC 7515).

Postroom needs one algorithm and one form, which are the lines below; a JOSE library would bring all the others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from postroom.directory.canonical_json import canonical
from postroom.directory.cards import Card
from postroom.errors import InvalidInput, Unauthorized
from postroom.identity import cardkey
from postroom.identity.cardkey import ALGORITHM, CardKey, from_text, to_text


def sign_card(card: Card, key: CardKey) -> Card:
    """`card` signed by `key`; former signatures are dropped."""
    unsigned = _unsigned(card)
    header = {"alg": ALGORITHM, "kid": key.kid, "typ": "JOSE"}
    protected = to_text(canonical(header))
    signature = to_text(key.sign(_signed_bytes(protected, unsigned)))
    return {**unsigned, "signatures": [{"protected": protected, "signature": signature}]}


def verify_card(card: Card, keys: Sequence[dict[str, str]]) -> Card:
    """The card without its signatures, if one of `keys` (of a JWK set) made one of them.

    Raises:
        InvalidInput: the card or a signature is malformed.
        Unauthorized: no signature is by one of `keys`.
    """
    unsigned = _unsigned(card)
    known = {key.get("kid", ""): key for key in keys}
    signatures = card.get("signatures", [])
    if not isinstance(signatures, list):
        raise InvalidInput("the card's signatures are no list")
    for entry in signatures:
        protected, signature = _parts(entry)
        header = _header(protected)
        key = known.get(str(header.get("kid")))
        # The algorithm is ours to choose, never the signer's (RFC 8725, section 3.1).
        if key is None or header.get("alg") != ALGORITHM or "crit" in header:
            continue
        if cardkey.verify(key, _signed_bytes(protected, unsigned), from_text(signature)):
            return unsigned
    raise Unauthorized("the card is not signed by a known key")


def _unsigned(card: Card) -> Card:
    return {name: value for name, value in card.items() if name != "signatures"}


def _signed_bytes(protected: str, unsigned: Card) -> bytes:
    return f"{protected}.{to_text(canonical(unsigned))}".encode("ascii")


def _parts(entry: Any) -> tuple[str, str]:
    if not isinstance(entry, dict):
        raise InvalidInput("a signature of the card is no object")
    protected, signature = entry.get("protected"), entry.get("signature")
    if not isinstance(protected, str) or not isinstance(signature, str):
        raise InvalidInput("a signature of the card lacks a part")
    return protected, signature


def _header(protected: str) -> dict[str, Any]:
    try:
        header = json.loads(from_text(protected))
    except (ValueError, RecursionError) as error:
        raise InvalidInput("a signature's header is no JSON") from error
    if not isinstance(header, dict):
        raise InvalidInput("a signature's header is no object")
    return header
