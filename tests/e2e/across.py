"""Two organisations of one post room, `default` and `acme`, each with its own people; grants between them."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.e2e.conftest import PostRoom


class Caller:
    """An agent that calls the API of its organisation with its own key."""

    def __init__(self, room: PostRoom, org: str, nick: str, key: str = "") -> None:
        self.room, self.org, self.nick = room, org, nick
        if not key:
            made = room.json("--org", org, "agents", "add", nick, "--external")
            self.uid, key = made["uid"], made["key"]["key"]
        else:
            self.uid = room.json("--org", org, "status")["me"]["uid"]
        self.headers = {"Authorization": f"Bearer {key}"}

    @property
    def address(self) -> str:
        """Its name elsewhere."""
        return f"@{self.nick}.{self.org}"

    def ask(self, method: str, path: str, status: int = 0, **more: Any) -> Any:
        """What its organisation answers; without `status` that has to be a success."""
        url = f"{self.room.server['url']}/orgs/{self.org}{path}"
        answer = httpx2.request(method, url, headers=self.headers, timeout=30, **more)
        assert answer.status_code == status or (not status and answer.is_success), answer.text
        return answer.json()

    def send(self, to: str, text: str, status: int = 0, **more: Any) -> Any:
        """Send a message."""
        return self.ask("POST", "/v1/messages", status, json={"to": to, "text": text, **more})

    def inbox(self, **query: Any) -> list[Any]:
        """What it has not seen; with `wait` once there is something."""
        given = {"unread": "true", "after": 0, **query}
        return self.ask("GET", "/v1/inbox", params=given)["messages"]

    def sees(self, *ids: str) -> None:
        """Acknowledge messages."""
        self.ask("POST", "/v1/inbox/ack", json={"ids": ids, "state": "seen"})

    def receipt(self, message: str, wait: str = "") -> Any:
        """How far a message has come, once it is at `wait`."""
        query = {"wait": wait, "timeout": 20} if wait else {}
        return self.ask("GET", f"/v1/messages/{message}", params=query)

    def lets_in(self, other: str, granter: str = "") -> None:
        """Have the operator let another write to it, or to `granter`, an agent of its organisation."""
        said = {"grantee": other, "granter": granter or self.uid}
        operator(self.room, self.org).ask("POST", "/v1/grants", json=said)


def operator(room: PostRoom, org: str) -> Caller:
    """The operator, as the person that it is in an organisation."""
    me = room.json("--org", org, "status")["me"]
    return Caller(room, org, me["nick"], room.server["token"])
