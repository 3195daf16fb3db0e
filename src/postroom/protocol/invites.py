"""The link of an invite: where the post room is, which organisation, which invite, and whom to trust for it. Pure.

    https://box.example:4281/orgs/acme/join/8f2c1a90b7d3e456#sha256:3d0a...

An organisation that is open to all is joined by the part before `/join`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from postroom.errors import InvalidInput
from postroom.protocol.origins import Origin, origin_of

_PATH = re.compile(r"(/orgs/(?P<org>[a-z0-9][a-z0-9_-]{0,63}))?(/join/(?P<invite>[0-9a-f]{16}))?/?")
_PIN = re.compile(r"(sha256:(?P<pin>[0-9a-f]{64}))?")


@dataclass(frozen=True, slots=True)
class Link:
    """What a link says.

    Attributes:
        org: "" for the default organisation.
        invite: its id, "" for none.
        fingerprint: SHA-256 of the authority that vouches for the post room, hex; "" for one that systems know.
    """

    origin: Origin
    org: str = ""
    invite: str = ""
    fingerprint: str = ""

    @property
    def url(self) -> str:
        """The link as people pass it on."""
        org = f"/orgs/{self.org}" if self.org else ""
        invite = f"/join/{self.invite}" if self.invite else ""
        pin = f"#sha256:{self.fingerprint}" if self.fingerprint else ""
        return f"{self.origin.url}{org}{invite}{pin}"


def link_of(text: str) -> Link:
    """The link that a text is.

    Raises:
        InvalidInput: it is none, or would send keys without TLS.
    """
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise _no_link(text) from error
    path, pin = _PATH.fullmatch(parts.path), _PIN.fullmatch(parts.fragment)
    if path is None or pin is None or parts.query:
        raise _no_link(text)
    origin = origin_of(f"{parts.scheme}://{parts.netloc}")
    return Link(origin, path["org"] or "", path["invite"] or "", pin["pin"] or "")


def _no_link(text: str) -> InvalidInput:
    return InvalidInput(
        f"{text!r} is not the link of an invite",
        remedy="the whole line that `postroom invite` has printed",
    )
