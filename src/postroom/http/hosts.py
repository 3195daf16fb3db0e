"""The check of `Host` and `Origin`, which keeps web pages from a listener of this machine.

A web page that rebinds its name to 127.0.0.1 still sends its own name in `Host` (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import Collection

from postroom.errors import Forbidden


def check_host(
    host: str, origin: str | None, hosts: Collection[str], pages: Collection[str] = ()
) -> None:
    """Refuse a request by its `Host` and `Origin` headers; raises Forbidden.

    Args:
        host: "" where there is none.
        origin: None where there is none, as for every program that is not a browser.
        hosts: names and ports of this listener.
        pages: origins whose web pages may ask, `scheme://name:port`.
    """
    if host.lower() not in hosts:
        raise Forbidden("this Host is not served here")
    if origin is not None and origin.lower() not in pages:
        raise Forbidden("this Origin may not call")
