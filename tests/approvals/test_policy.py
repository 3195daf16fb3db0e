"""What people allow one worker to do without asking, from now on: kept with the worker, told to its sidecar at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from postroom.errors import StateUnwritable
from postroom.identity import pins as pins_module
from postroom.protocol.limits import MAX_PATTERNS
from postroom.protocol.principal import Scope
from postroom.store.database import Store
from tests.approvals.asking import Sidecar, sidecar_of
from tests.control.taskroom import TaskRoom, emptied, task_room
from tests.control.test_keys import person

pytestmark = pytest.mark.anyio

PATH = "/v1/workers/alice/policy"
TEST, LINT = "Bash(npm test)", "Bash(npm run lint *)"
RULES = """
[worker]
name = "alice"
[workstation]
command = ["true"]
[sidecar]
auto_approve = ["Read"]
auto_deny = ["Bash(*push*)"]
"""


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pins_module._COST, "n", 2)


async def allow(api: httpx2.AsyncClient, pattern: str, **more: Any) -> httpx2.Response:
    return await api.post(PATH, json={"pattern": pattern, **more})


async def forget(api: httpx2.AsyncClient, pattern: str, **more: Any) -> httpx2.Response:
    return await api.request("DELETE", PATH, json={"pattern": pattern, **more})


async def kept(room: TaskRoom) -> list[str]:
    found = (await room.api.get(PATH)).json()
    return [rule["pattern"] for rule in found["added"]]


async def changes(alice: Sidecar) -> list[dict[str, Any]]:
    """What the sidecar hears of the policy."""
    await alice.room.folded("EVENTS")
    return [each for each in (await alice.heard())["records"] if each["type"] == "policy"]


@pytest.mark.requirement("policy-added-at-once")
async def test_what_is_added_once_is_kept_shown_with_who_and_said_to_the_sidecar(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        added = [await allow(room.api, pattern) for pattern in (TEST, f" {TEST} ", LINT)]
        assert [each.status_code for each in added] == [200, 200, 200]
        assert await kept(room) == [TEST, LINT]
        found = added[-1].json()
        assert found == (await room.api.get(PATH)).json()
        assert {rule["by"]["nick"] for rule in found["added"]} == {room.owner.nick}
        heard = await changes(alice)
        assert [(e["change"], e["pattern"], e["by"]["nick"]) for e in heard] == [
            ("added", TEST, room.owner.nick),
            ("added", LINT, room.owner.nick),
        ]
        assert [each.get("rules") for each in heard] == [None, [TEST, LINT]]


@pytest.mark.requirement("policy-added-at-once")
async def test_what_is_removed_is_gone_for_the_sidecar_too_and_what_is_not_there_changes_nothing(
    shared: TaskRoom,
):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        await allow(room.api, TEST)
        gone = [await forget(room.api, TEST), await forget(room.api, TEST)]
        assert [(each.status_code, each.json()["added"]) for each in gone] == [(200, [])] * 2
        heard = await changes(alice)
        assert [(each["change"], each.get("rules")) for each in heard] == [
            ("added", None),
            ("removed", []),
        ]


async def test_the_templates_own_rules_are_shown_with_it_and_stay(shared: TaskRoom):
    async with emptied(shared) as room:
        await room.worker("alice", template=RULES)
        await allow(room.api, TEST)
        await forget(room.api, "Read")
        found = (await room.api.get(PATH)).json()
        assert (found["auto_deny"], found["auto_approve"]) == (["Bash(*push*)"], ["Read"])
        assert (found["autonomous"], found["template"]) == (False, "")
        assert await kept(room) == [TEST]


@pytest.mark.requirement("policy-added-at-once")
async def test_two_people_at_once_lose_nothing_of_each_others(shared: TaskRoom):
    operates = person(shared, "ann", Scope.READ, Scope.OPERATE)
    async with emptied(shared) as room, sidecar_of(room) as alice, operates as ann:
        mine = [f"Bash(make a{number})" for number in range(8)]
        hers = [f"Bash(make b{number})" for number in range(8)]
        done = await asyncio.gather(
            *(allow(room.api, pattern) for pattern in [*mine, TEST]),
            *(allow(ann.api, pattern) for pattern in [*hers, TEST]),
        )
        assert {each.status_code for each in done} == {200}
        assert sorted(await kept(room)) == sorted([*mine, *hers, TEST])
        heard = await changes(alice)
        assert len(heard) == 17
        assert sorted(heard[-1]["rules"]) == sorted([*mine, *hers, TEST])


@pytest.mark.requirement("policy-added-at-once")
@pytest.mark.parametrize(
    "pattern", ["*", "Bash", "Bash(*)", "Bash(a; eval b)", "Bash(a", "a\nb", "é" * 900]
)
async def test_a_pattern_that_is_refused_changes_nothing(shared: TaskRoom, pattern: str):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        refused = await allow(room.api, pattern)
        assert refused.status_code in (400, 422), refused.text
        assert (await kept(room), await changes(alice)) == ([], [])


async def test_only_who_operates_may_and_no_worker_not_even_for_itself(shared: TaskRoom):
    reads = person(shared, "ann", Scope.READ, Scope.SEND)
    async with emptied(shared) as room, sidecar_of(room) as alice, reads as ann:
        body = {"pattern": TEST}
        for api, path in ((ann.api, PATH), (alice.door, f"{alice.path}/policy")):
            assert (await api.get(path)).status_code == 403
            assert (await api.post(path, json=body)).status_code == 403
            assert (await api.request("DELETE", path, json=body)).status_code == 403
        assert await kept(room) == []


async def test_what_a_sidecar_reports_of_a_policy_is_no_change_of_it(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        said = {"change": "added", "pattern": TEST, "by": {"nick": "maria"}}
        await alice.report({"type": "policy", **said})
        events = (await room.api.get(f"{alice.path}/sdk-events")).json()["events"]
        assert [event["type"] for event in events] == ["raw"]
        assert (await kept(room), await changes(alice)) == ([], [])


@pytest.mark.requirement("approval-pin-demanded")
async def test_with_a_pin_set_nothing_is_added_or_removed_without_it(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room):
        await room.api.put("/v1/pin", json={"pin": "4711"})
        try:
            bare = [await allow(room.api, TEST), await allow(room.api, TEST, pin="1")]
            none = await kept(room)
            added = await allow(room.api, TEST, pin="4711")
            stays = await forget(room.api, TEST)
            still = await kept(room)
            gone = await forget(room.api, TEST, pin="4711")
        finally:
            await room.api.put("/v1/pin", json={"pin": "", "old": "4711"})
        assert [each.json()["code"] for each in bare] == ["pin-required", "pin-wrong"]
        assert (none, still) == ([], [TEST])
        assert (added.status_code, stays.json()["code"]) == (200, "pin-required")
        assert (gone.status_code, gone.json()["added"]) == (200, [])


async def test_a_worker_that_asks_nobody_and_one_with_too_many_are_told_so(shared: TaskRoom):
    async with emptied(shared) as room:
        await room.worker("quiet", start=False)
        refused = await room.api.post("/v1/workers/quiet/policy", json={"pattern": TEST})
        assert (refused.status_code, "asks nobody" in refused.text) == (409, True)

        alice = await room.worker("alice")
        by = {"uid": "u", "nick": "n", "kind": "human", "at": 1.0}
        many: Any = [{"pattern": f"Edit(a{number})", **by} for number in range(MAX_PATTERNS)]

        def fill(store: Store) -> None:
            store.workers.set_rules(alice.uid, many)

        await room.parts.database.write(fill)
        full = await allow(room.api, TEST)
        same = await allow(room.api, "Edit(a7)")
        assert (full.status_code, same.status_code) == (409, 200)
        assert (await forget(room.api, "Edit(a7)")).status_code == 200
        assert (await allow(room.api, TEST)).status_code == 200


async def test_what_the_sidecar_cannot_be_told_is_not_kept_so_that_a_second_try_is_none_for_nothing(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    def full() -> None:
        raise StateUnwritable("the disk is full")

    async with emptied(shared) as room, sidecar_of(room) as alice:
        await allow(room.api, LINT)
        monkeypatch.setattr(room.parts.events, "_space", full)
        failed = [await allow(room.api, TEST), await forget(room.api, LINT)]
        monkeypatch.undo()
        assert [each.status_code for each in failed] == [503, 503]
        assert await kept(room) == [LINT]
        assert (await allow(room.api, TEST)).status_code == 200
        assert (await changes(alice))[-1]["rules"] == [LINT, TEST]
