"""Every subject that can be built, and every one that a right names, for tests that try them all."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator

from postroom.protocol import subjects
from postroom.protocol.permissions import agent_permissions, core_exports
from tests.identity.stage import LOBBY

_VALUES = {
    **dict.fromkeys(("project",), (LOBBY,)),
    **dict.fromkeys(("task_id",), ("1" * 32,)),
    **dict.fromkeys(("state",), ("completed",)),
    **dict.fromkeys(("original",), ("worker.x.inbox.y",)),
    **dict.fromkeys(("verb",), ("agents.resolve",)),
    **dict.fromkeys(("token",), ("0123456789abcdef",)),
}
_UIDS = ("recipient", "sender", "uid", "setter", "own", "asker", "answerer", "worker")


def forms(uids: tuple[str, ...]) -> Iterator[str]:
    """Every subject that `protocol.subjects` can build with these uids, in each place of each."""
    for _, build in inspect.getmembers(subjects, inspect.isfunction):
        made_here = build.__module__ == subjects.__name__
        parameters = inspect.signature(build).parameters
        if not made_here or inspect.signature(build).return_annotation != "str":
            continue
        if list(parameters) == ["subject"]:
            continue  # reads one
        choices = [uids if name in _UIDS else _VALUES[name] for name in parameters]
        for values in itertools.product(*choices):
            yield build(*values)


def rights(uids: tuple[str, ...]) -> Iterator[str]:
    """Every subject of an agent's rights, and of what core offers, with these uids for its own and for wildcards."""
    patterns = [
        pattern
        for own in uids
        for kind in (agent_permissions(own, (LOBBY,)),)
        for pattern in (*kind.publish, *kind.subscribe)
    ]
    patterns += [export.subject for export in core_exports()]
    for pattern in patterns:
        for uid in uids:
            tail = "completed.x" if ".tasks." in pattern else "1.2.3"
            yield ".".join(
                uid if token == "*" else tail if token == ">" else token
                for token in pattern.split(".")
            )
