"""What the refusal of an address tells by its time: an agent that does not exist, beside those that have not let in.

All are asked for in turns over one connection, so that what disturbs the machine disturbs each alike. What is stated is
by how much the time of each differs from that of an agent that does not exist, and how far that lies apart.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import statistics
import time

import httpx2

from benchmarks.connection import Connection
from benchmarks.post.programs import FREE
from benchmarks.report import Sheet
from benchmarks.room import post_room

ROUNDS, QUICK = 3000, 150
BLOCKS = 10
"""Parts of the run, each with a median of its own: their spread is that of the difference."""

NOBODY = "nobody there"


def measure(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about a minute."""
    with post_room(more=FREE) as room:
        room.run("org", "create", "acme")
        refs, key = _furnished(room.server["url"], room.server["token"])
        took = asyncio.run(_asked(room.server["url"], key, refs, QUICK if quick else ROUNDS))
    nobody = took[NOBODY]
    for name, times in took.items():
        sheet.add(f"{name}: refused in", times, "us")
        if name != NOBODY:
            sheet.add(f"{name}: more than {NOBODY}", _differences(times, nobody), "us")
    sheet.note(
        f"Each refused (403) {len(nobody):,} times, in turns. A difference is one of the medians of a"
        f" tenth of the run; least and greatest are over the {BLOCKS} tenths."
    )


def _furnished(url: str, token: str) -> tuple[dict[str, str], str]:
    """Addresses by why they are refused, and the key of who asks."""
    with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as http:

        def made(path: str, **body: object) -> dict:
            answer = http.post(path, json=body)
            answer.raise_for_status()
            return answer.json()

        def agent(nick: str, org: str) -> dict:
            return made(f"/orgs/{org}/v1/agents", nick=nick, kind="external")

        alice = agent("alice", "default")
        refs = {NOBODY: "@nobody.acme", "no such organisation": "@some.nowhere"}
        for nick, scopes in (("plain", []), ("cards", ["card"]), ("ended", ["message"])):
            uid = agent(nick, "acme")["uid"]
            if scopes:
                given = {"grantee": alice["uid"], "granter": uid, "scopes": scopes}
                grant = made("/orgs/acme/v1/grants", **given)
                if nick == "ended":
                    http.delete(f"/orgs/acme/v1/grants/{grant['id']}").raise_for_status()
            why = {"plain": "no grant", "cards": "another scope", "ended": "an ended grant"}[nick]
            refs[why] = f"@{nick}.acme"
            if nick == "plain":
                refs["no grant, by uid"] = uid
        refs["nobody there, by uid"] = secrets.token_hex(16)
        return refs, alice["key"]["key"]


async def _asked(url: str, key: str, refs: dict[str, str], rounds: int) -> dict[str, list[float]]:
    """Microseconds of each refusal, by its reason."""
    took: dict[str, list[float]] = {name: [] for name in refs}
    chosen = random.Random(1)
    names = list(refs)
    async with Connection(url, key) as connection:
        for number in range(rounds + 20):
            chosen.shuffle(names)
            for name in names:
                body = {"to": refs[name], "text": "x"}
                begun = time.perf_counter()
                try:
                    answer = await connection.call("POST", "/v1/messages", body)
                    raise AssertionError(f"{name} was not refused: {answer[:200]!r}")
                except RuntimeError as refused:
                    spent = time.perf_counter() - begun
                    if "not-let-in" not in str(refused):
                        raise
                if number >= 20:
                    took[name].append(spent * 1e6)
    return took


def _differences(times: list[float], nobody: list[float]) -> list[float]:
    """By how much the medians differ in each tenth of the run."""
    size = max(1, len(times) // BLOCKS)
    return [
        statistics.median(times[at : at + size]) - statistics.median(nobody[at : at + size])
        for at in range(0, size * BLOCKS, size)
    ]
