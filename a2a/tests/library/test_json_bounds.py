"""How much JSON is let in: its depth and its values, by its bytes alone."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from postroom_a2a import strict_json
from postroom_a2a.strict_json import TooDeep, TooMany, check

DEPTH, MOST = 6, 40


def deep(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (isinstance(value, dict | list)) + max(map(deep, inside), default=0)


def values(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    empty = isinstance(value, dict | list) and not value
    return 1 + empty + sum(map(values, inside))


TEXTS = ("", ",", "[[[[", "}", '"', "\\", '\\"', '\\\\",', "a\nb", "{,}", "\u20ac", '"[,', "\\\\")


def made(chance: random.Random, levels: int) -> Any:
    kind = chance.randrange(8 if levels else 4)
    if kind < 4:
        return (chance.choice(TEXTS), 1.5, None, True)[kind]
    inside = [made(chance, levels - 1) for _ in range(chance.randrange(5))]
    return inside if kind < 6 else {chance.choice(TEXTS) + str(n): v for n, v in enumerate(inside)}


def fault(payload: bytes, depth: int = DEPTH, most: int = MOST) -> type[ValueError] | None:
    try:
        check(payload, depth, most)
    except ValueError as error:
        return type(error)
    return None


@pytest.mark.requirement("json-bounded")
@pytest.mark.parametrize("seed", range(40))
def test_depth_and_values_are_those_of_the_value(seed: int):
    chance = random.Random(seed)
    for _ in range(100):
        value = made(chance, chance.randrange(10))
        for payload in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
            expected = TooMany if values(value) > MOST else TooDeep if deep(value) > DEPTH else None
            assert fault(payload.encode()) is expected, payload


@pytest.mark.requirement("json-bounded")
@pytest.mark.parametrize("depth", [1, 2, 63, 64])
def test_the_bound_itself_is_let_in(depth: int):
    assert fault(b"[" * depth + b"]" * depth, depth, 1000) is None
    assert fault(b"[" * (depth + 1) + b"]" * (depth + 1), depth, 1000) is TooDeep
    assert fault(b'{"a":' * (depth + 1) + b"1" + b"}" * (depth + 1), depth, 1000) is TooDeep


@pytest.mark.requirement("json-bounded")
@pytest.mark.parametrize(
    "text", ["," * 5000, "[{" * 5000, '"' * 5000, "\\" * 5001, '\\",[' * 2000, "\\u005b" * 2000]
)
def test_what_stands_within_a_text_is_no_value(text: str):
    assert fault(json.dumps({"text": text, "to": ["x"]}).encode()) is None


@pytest.mark.requirement("json-bounded")
def test_a_text_does_not_hide_what_follows_it():
    for end in ('"', '\\\\"', '\\"', '\\\\\\"', "\\u0022"):
        text = f'["{end}"' + ",[[[]]]" * 5000 + "]"
        with pytest.raises(ValueError):
            strict_json.bounded(text.encode(), DEPTH, MOST)


@pytest.mark.parametrize(
    "payload", [b"[" * 9000, b"]" * 9000, b'"' * 9000, b"," * 9000, b"\\" * 99]
)
def test_what_is_no_json_is_refused(payload: bytes):
    with pytest.raises(ValueError):
        strict_json.bounded(payload, 64, 10_000)
