"""Finds tasks by the words of their requests, in the index of what was said: a request is a message."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import Any

from postroom.protocol.limits import MAX_PAGE
from postroom.store.database import Store
from postroom.store.ports import TaskHead


def tasks_having(
    store: Store, words: Collection[str], *, limit: int, before: int = 0, **wanted: Any
) -> list[TaskHead]:
    """The tasks that have each of `words` in their requests, the newest request first; as `Tasks.list_tasks`."""
    if not words:
        return store.tasks.list_tasks(limit=limit, before=before, **wanted)
    parties = {wanted["worker"], wanted["requester"], wanted["party"]} - {""}
    found: list[TaskHead] = []
    while len(found) < limit:
        requests = store.messages.search(
            words=words, parties=parties, requests=True, limit=MAX_PAGE, before=before
        )
        heads = store.tasks.heads_by_requests([row.seq for row in requests])
        heads.sort(key=attrgetter("requested_seq"), reverse=True)
        found += [head for head in heads if _fits(head, **wanted)]
        if len(requests) < MAX_PAGE:
            break
        before = requests[-1].seq
    return found[:limit]


def _fits(
    head: TaskHead,
    *,
    worker: str,
    requester: str,
    states: Collection[str],
    open_only: bool | None,
    party: str,
    door: str,
) -> bool:
    return (
        worker in ("", head.worker)
        and requester in ("", head.requester)
        and (not states or head.state in states)
        and open_only in (None, not head.final)
        and party in ("", head.worker, head.requester)
        and door in ("", head.door)
    )
