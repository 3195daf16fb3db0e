"""The headers that pass from one connection to the next (RFC 9110, section 7.6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Headers = list[tuple[bytes, bytes]]
"""Names, in lower case, and values."""

_HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
        *(b"expect", b"http2-settings"),
    }
)
_OF_PROXIES = frozenset(
    {
        *(b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"true-client-ip"),
        *(b"cf-connecting-ip", b"x-cluster-client-ip", b"x-original-url", b"x-rewrite-url"),
    }
)
"""Headers that servers believe of a proxy before them: a sandbox must not pose as one."""


def nominated(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    """The headers that a Connection header limits to this connection."""
    return {
        word.strip().lower()
        for name, value in headers
        if name == b"connection"
        for word in value.split(b",")
    }


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers without those of one connection alone; the length stays unless the body is chunked."""
    headers = list(headers)
    dropped = _HOP_BY_HOP | (nominated(headers) - {b"content-length", b"host"})
    if any(name == b"transfer-encoding" for name, _ in headers):
        dropped |= {b"content-length"}
    return [
        (name, value)
        for name, value in headers
        if name not in dropped and not name.startswith(b"proxy-")
    ]


def onward(
    headers: Iterable[tuple[bytes, bytes]],
    host: str,
    added: Mapping[bytes, tuple[bytes, bytes]],
) -> Headers:
    """The headers of a request as the gateway sends it on.

    Args:
        added: by lower-case name; they replace the sandbox's headers of these names.
    """
    chunked = any(name == b"transfer-encoding" for name, _ in headers)
    kept = [
        (name, value)
        for name, value in end_to_end(headers)
        if name not in added
        and name != b"host"
        and name not in _OF_PROXIES
        and not name.startswith(b"x-forwarded-")
    ]
    framing = [(b"transfer-encoding", b"chunked")] if chunked else []
    close = [(b"connection", b"close")]
    return [(b"host", host.encode()), *kept, *added.values(), *framing, *close]
