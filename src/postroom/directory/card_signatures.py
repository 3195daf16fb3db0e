"""Signatures of Agent Cards: JWS over canonical JSON, its payload left out (A2A 1.0, section 8.4; RFC 7515).

Postroom needs one algorithm, which is the lines below; a JOSE library would bring all the others. Of canonical JSON
(RFC 8785) only the number format would need a library, and an Agent Card has whole numbers only. What remains is the
order of keys (by UTF-16 code units, section 3.2.3) and the escapes, which `json` writes as the RFC wants them.

A card has two forms to sign. The specification's has each member that is set, also an empty one, as are the scopes of a
security requirement. The official SDK signs and verifies a card without them, and of 1.0 alone where members of 0.3
stand beside it. So a card has a signature over each form in which it differs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from postroom.directory.cards import Card
from postroom.errors import InvalidInput, Unauthorized
from postroom.identity import cardkey
from postroom.identity.cardkey import ALGORITHM, CardKey, from_text, to_text
from postroom_a2a.http.cards import card_up

MAX_INTEGER = 2**53 - 1
"""Largest whole number that every reader of JSON keeps exactly (RFC 7493, section 2.2)."""


def sign_card(card: Card, key: CardKey) -> Card:
    """`card` signed by `key`, in each of its forms; former signatures are dropped."""
    unsigned = _unsigned(card)
    header = {"alg": ALGORITHM, "kid": key.kid, "typ": "JOSE"}
    protected = to_text(canonical(header))
    signatures = [
        {"protected": protected, "signature": to_text(key.sign(_signed_bytes(protected, form)))}
        for form in _forms(unsigned)
    ]
    return {**unsigned, "signatures": signatures}


def verify_card(card: Card, keys: Sequence[dict[str, str]]) -> Card:
    """What one of `keys` (of a JWK set) has signed of a card: all but the signatures, or its second form.

    Raises:
        InvalidInput: the card or a signature is malformed.
        Unauthorized: no signature is by one of `keys`.
    """
    forms = _forms(_unsigned(card))
    known = {key.get("kid", ""): key for key in keys}
    signatures = card.get("signatures", [])
    if not isinstance(signatures, list):
        raise InvalidInput("the card's signatures are not a list")
    for entry in signatures:
        protected, signature = _parts(entry)
        header = _header(protected)
        key = known.get(str(header.get("kid")))
        # The algorithm is ours to choose, never the signer's (RFC 8725, section 3.1).
        if key is None or header.get("alg") != ALGORITHM or "crit" in header:
            continue
        for form in forms:
            if cardkey.verify(key, _signed_bytes(protected, form), from_text(signature)):
                return form
    raise Unauthorized("the card is not signed by a known key")


def _unsigned(card: Card) -> Card:
    return {name: value for name, value in card.items() if name != "signatures"}


def _forms(unsigned: Card) -> list[Card]:
    """The card as it stands, then as the official SDK reads it if that is another."""
    try:
        read = _without_empty(card_up(unsigned))
    except RecursionError as error:
        raise InvalidInput("the card is nested too deeply") from error
    return [unsigned] if read == unsigned else [unsigned, read]


def _without_empty(value: Any) -> Any:
    """`value` without empty texts, lists and objects; what has nothing else in it is empty, too."""
    if isinstance(value, dict):
        kept = {name: _without_empty(each) for name, each in value.items()}
        return {name: each for name, each in kept.items() if not _is_empty(each)}
    if isinstance(value, (list, tuple)):
        return [each for each in map(_without_empty, value) if not _is_empty(each)]
    return value


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, list, dict)) and not value)


def _signed_bytes(protected: str, unsigned: Card) -> bytes:
    return f"{protected}.{to_text(canonical(unsigned))}".encode("ascii")


def _parts(entry: Any) -> tuple[str, str]:
    if not isinstance(entry, dict):
        raise InvalidInput("a signature of the card is not an object")
    protected, signature = entry.get("protected"), entry.get("signature")
    if not isinstance(protected, str) or not isinstance(signature, str):
        raise InvalidInput("a signature of the card lacks a part")
    return protected, signature


def _header(protected: str) -> dict[str, Any]:
    try:
        header = json.loads(from_text(protected))
    except (ValueError, RecursionError) as error:
        raise InvalidInput("a signature's header is not JSON") from error
    if not isinstance(header, dict):
        raise InvalidInput("a signature's header is not an object")
    return header


def canonical(value: Any) -> bytes:
    """`value` as canonical JSON in UTF-8.

    Raises:
        InvalidInput: it has a float, a number over 2^53 - 1, a lone surrogate, endless nesting, or is not JSON.
    """
    try:
        return json.dumps(_ordered(value), ensure_ascii=False, separators=(",", ":")).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        raise InvalidInput(f"no canonical JSON: {type(error).__name__}") from error


def _ordered(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise InvalidInput(f"no canonical JSON: a number over {MAX_INTEGER}")
        return value
    if isinstance(value, (list, tuple)):
        return [_ordered(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        # A surrogate pair sorts below the characters after it, so code points would be another order.
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return {key: _ordered(value[key]) for key in keys}
    raise InvalidInput(f"no canonical JSON: {type(value).__name__}")
