"""Strategies for payloads that a hostile or broken peer may store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

any_text = st.text(st.characters(exclude_categories=()), max_size=20)

# What Python's JSON reader takes beyond JSON: NaN, infinities, numbers without end, lone surrogates.
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | any_text
    | st.sampled_from(
        ["idle", "seen", "dead", "2026-01-31T12:00:00Z", "0001-01-01T00:00:00+23:59"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)

too_deep = st.sampled_from(
    [b"[" * 100_000, b'{"a":' * 100_000, b'{"v":1,"message":' + b"[" * 99_999]
)


def payloads(valid: Mapping[str, Any]) -> st.SearchStrategy[bytes]:
    """Bytes, JSON of any shape, and records that differ from `valid` in some members."""
    changed = st.dictionaries(st.sampled_from(sorted(valid)), anything, max_size=3).map(
        lambda change: {**valid, **change}
    )
    left_out = st.sets(st.sampled_from(sorted(valid)), max_size=2).map(
        lambda gone: {key: value for key, value in valid.items() if key not in gone}
    )
    return (
        st.binary(max_size=60)
        | too_deep
        | (anything | changed | left_out).map(lambda record: json.dumps(record).encode())
    )


def is_storable(value: Any) -> bool:
    """Whether it can be stored and answered: strict JSON in UTF-8 (RFC 8259, RFC 7493 section 2.1)."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return False
    return True
