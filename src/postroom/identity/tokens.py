"""Bearer tokens and API keys, and their stored form.

A token is shown once; only its SHA-256 is stored. 32 random bytes need no slow hash: nobody can guess them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from postroom.errors import InvalidInput
from postroom.protocol.ids import check_uid

TOKEN_BYTES = 32

_API_KEY = re.compile(r"a2a_([0-9a-f]{32})_[0-9a-f]{64}")


def new_token() -> str:
    """A bearer token: 64 hex digits, so that it needs no quoting anywhere."""
    return secrets.token_hex(TOKEN_BYTES)


def new_api_key(uid: str) -> str:
    """An API key of agent `uid`: `a2a_<uid>_<64 hex digits>`."""
    return f"a2a_{check_uid(uid)}_{secrets.token_hex(TOKEN_BYTES)}"


def api_key_uid(key: str) -> str:
    """The uid that an API key claims; `matches` checks the claim.

    Raises:
        InvalidInput: not in the form of an API key; the message does not repeat it.
    """
    found = _API_KEY.fullmatch(key)
    if found is None:
        raise InvalidInput("not an API key", remedy="a2a_<agent id>_<64 hex digits>")
    return found.group(1)


def digest(token: str) -> str:
    """The stored form of a token: its SHA-256, 64 hex digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def equal(one: str, other: str) -> bool:
    """Whether two digests are the same, in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def matches(token: str, stored: str) -> bool:
    """Whether `token` is the one whose `digest` is `stored`, in constant time."""
    return hmac.compare_digest(digest(token).encode(), stored.encode("utf-8", "surrogatepass"))
