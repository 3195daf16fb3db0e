"""Content that is too large for a message: named by its SHA-256, as `blob:sha256:<64 hex digits>` in a part's `url`.

The hash lets every reader check the content, which never changes.
"""

from __future__ import annotations

import re
from typing import Any

from postroom.errors import InvalidInput
from postroom.protocol.limits import MAX_NAMED_BLOBS

PREFIX = "blob:sha256:"
SHA256 = re.compile(r"[0-9a-f]{64}")

DEFAULT_MEDIA_TYPE = "application/octet-stream"
MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9.+_-]{0,62}/[a-z0-9][a-z0-9.+_-]{0,62}")


def blob_url(sha256: str) -> str:
    """The URL of the content with that hash."""
    return PREFIX + sha256


def check_sha256(value: str) -> str:
    """`value` if it is a hash."""
    if SHA256.fullmatch(value) is None:
        raise InvalidInput("a blob is named by the 64 hex digits of its SHA-256")
    return value


def is_blob(url: object) -> bool:
    """Whether that is the URL of a blob."""
    return (
        isinstance(url, str)
        and url.startswith(PREFIX)
        and bool(SHA256.fullmatch(url[len(PREFIX) :]))
    )


def sha256_of(url: str) -> str:
    """The hash in a blob's URL.

    Raises:
        InvalidInput: it is not the URL of a blob.
    """
    if not is_blob(url):
        raise InvalidInput(f"the URL of a blob is {PREFIX} and the 64 hex digits of its SHA-256")
    return url[len(PREFIX) :]


def media_type_of(value: str) -> str:
    """The media type in a Content-Type, without its parameters; `DEFAULT_MEDIA_TYPE` for anything else."""
    kind = value.partition(";")[0].strip().lower()
    return kind if MEDIA_TYPE.fullmatch(kind) else DEFAULT_MEDIA_TYPE


def named_in(document: Any) -> list[str]:
    """Hashes of the blobs that the parts in an A2A document name, at most `MAX_NAMED_BLOBS`, each once.

    The document may be any JSON value of any depth.
    """
    found: dict[str, None] = {}
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for url in _urls(value.get("parts")):
                found[url[len(PREFIX) :]] = None
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return list(found)[:MAX_NAMED_BLOBS]


def _urls(parts: Any) -> list[str]:
    if not isinstance(parts, list):
        return []
    return [part["url"] for part in parts if isinstance(part, dict) and is_blob(part.get("url"))]
