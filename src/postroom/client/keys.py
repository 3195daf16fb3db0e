"""Calls about API keys and people (docs/api.md)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from postroom.client.calls import Calls, given, name_of
from postroom.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.protocol.shapes import Key, NewKey, NewPerson, Person, Principal

KEY_ID = re.compile(r"[0-9a-f]{32}|operator")


class KeyCalls(Calls):
    """The calls about keys, and the people who have them."""

    def me(self) -> Principal:
        """Who calls, and what their key allows."""
        return self._get("/v1/me")

    def api_keys(self, *, agent: str = "", ended: bool = False) -> list[Key]:
        """One's own keys, or all, or those of one agent, for who may; with `ended` the revoked ones too."""
        query = given(agent=agent, ended="true" if ended else "")
        return self._get("/v1/keys", query or None)["keys"]

    def create_key(
        self,
        *,
        agent: str = "",
        name: str = "",
        scopes: Sequence[str] = (),
        expires_in: float | None = None,
        pin: str = "",
    ) -> NewKey:
        """A new key, for oneself or for `agent`; it is shown this once.

        `pin` is the caller's, if they have set one, for a key that may operate or administer.
        """
        body: dict[str, Any] = given(agent=agent, name=name, expires_in=expires_in, pin=pin)
        return self.transport.call("POST", "/v1/keys", json=body | {"scopes": list(scopes)})

    def rotate_key(self, key: str, *, pin: str = "") -> NewKey:
        """Another key in the place of the one with that id; the former is dead when this returns."""
        body = given(pin=pin) or None
        return self.transport.call("POST", f"/v1/keys/{_id(key)}/rotate", json=body)

    def revoke_key(self, key: str) -> Key:
        """End a key."""
        return self.transport.call("DELETE", f"/v1/keys/{_id(key)}", repeatable=True)

    def people(self) -> list[Person]:
        """The people of the organisation."""
        return self._get("/v1/people")["people"]

    def add_person(
        self,
        nick: str,
        *,
        scopes: Sequence[str] = (),
        expires_in: float | None = None,
        pin: str = "",
    ) -> NewPerson:
        """Give a person an address and their first key, which is shown this once; `pin` as for `create_key`."""
        body = {"nick": name_of(nick), "scopes": list(scopes)}
        body |= given(expires_in=expires_in, pin=pin)
        return self.transport.call("POST", "/v1/people", json=body)

    def remove_person(self, ref: str) -> Person:
        """Take a person's address and keys away for ever."""
        return self.transport.call("DELETE", f"/v1/people/{name_of(ref)}")


def _id(key: str) -> str:
    if KEY_ID.fullmatch(key) is None:
        raise InvalidInput(
            "that is not the id of a key: 32 of the digits 0-9 and a-f, or operator",
            remedy="postroom keys list",
        )
    return key
