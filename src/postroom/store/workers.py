"""The rows from which a worker can be started again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NotRequired, TypedDict

from sqlalchemy import bindparam, delete, insert, select, update

from postroom.store.schema import workers
from postroom.store.session import Session, prepared, values_of

RUNNING = "running"
STOPPED = "stopped"
REVOKED = "revoked"


class AddedRule(TypedDict):
    """A pattern (`protocol.patterns`) that a person has added; `at` in epoch seconds.

    With `autonomy` (`protocol.autonomy`) it is no pattern, which is "" then: how much is done unasked, in all turns or
    in those for `task`.
    """

    pattern: str
    uid: str
    nick: str
    kind: str
    at: float
    autonomy: NotRequired[str]
    task: NotRequired[str]


def patterns_of(rules: Sequence[AddedRule]) -> list[str]:
    """The patterns among what people have added."""
    return [rule["pattern"] for rule in rules if "autonomy" not in rule]


def autonomy_of(rules: Sequence[AddedRule]) -> dict[str, str]:
    """The autonomy that people have set, by task; "" for all turns."""
    return {rule.get("task", ""): rule["autonomy"] for rule in rules if "autonomy" in rule}


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker as it was requested.

    Attributes:
        template: text of the TOML file.
        files: name to base64, the files next to the template.
        overrides: the values of `--set`.
        sandbox, level: provider, and the level that its last start had proven, "" before the first.
        desired: `running`, `stopped`, or `revoked` (stopped, with void credentials).
        token_sha256: of the bearer token that opens its door, hexadecimal.
        begun_at: when a person started it last; 0 for not known.
        exceeded: the limit for which it was ended since, or ""; while it is set, only a person starts the
            worker again.
        origin: `path` of the template, and the person's `name`, `project`, `sandbox`, `isolation`; `workspace` and
            `mode` where it works on a folder of the machine; `by`, whom it is judged for (`workers.reach`).
        rules: what people allow it to do without asking them, the oldest first.
    """

    uid: str
    project: str
    template: str
    sandbox: str
    level: str
    desired: str
    token_sha256: str
    created_at: float
    files: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    begun_at: float = 0.0
    exceeded: str = ""
    origin: dict[str, str] = field(default_factory=dict)
    rules: list[AddedRule] = field(default_factory=list)


_NAMES = [item.name for item in fields(WorkerRecord)]
_COLUMNS = [workers.c[name] for name in _NAMES]
_BY_UID = prepared(select(*_COLUMNS).where(workers.c.uid == bindparam("uid")))
_BY_TOKEN = prepared(select(workers.c.uid).where(workers.c.token_sha256 == bindparam("token")))


_DOCUMENTS = ("files", "overrides", "origin", "rules")


def _record(*row: Any) -> WorkerRecord:
    values = dict(zip(_NAMES, row, strict=True))
    values |= {name: json.loads(values[name]) for name in _DOCUMENTS}
    return WorkerRecord(**values)


class WorkerStore:
    """The workers as people have asked for them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_worker(self, worker: WorkerRecord) -> None:
        """Store a new worker; its agent must exist."""
        values = values_of(worker)
        values |= {name: json.dumps(values[name]) for name in _DOCUMENTS}
        self._session.run(insert(workers).values(**values))

    def worker_by_uid(self, uid: str) -> WorkerRecord | None:
        """The worker with that uid."""
        return self._session.first(_record, _BY_UID, uid=uid)

    def all_workers(self, *, desired: str = "") -> list[WorkerRecord]:
        """All workers, oldest first; with `desired` only those with that wish."""
        found = select(*_COLUMNS).order_by(workers.c.created_at, workers.c.uid)
        if desired:
            found = found.where(workers.c.desired == desired)
        return self._session.all(_record, found)

    def set_desired(self, uid: str, desired: str) -> bool:
        """Store the desired state; False if the worker does not exist."""
        changed = update(workers).where(workers.c.uid == uid).values(desired=desired)
        return self._session.run(changed) == 1

    def set_begun(self, uid: str, at: float) -> bool:
        """Store that a person starts the worker, and clear `exceeded`; False if the worker does not exist."""
        changed = update(workers).where(workers.c.uid == uid).values(begun_at=at, exceeded="")
        return self._session.run(changed) == 1

    def set_template(self, worker: WorkerRecord) -> bool:
        """Replace the template, sandbox, level and origin; False if the worker does not exist."""
        values = {
            "template": worker.template,
            "files": json.dumps(worker.files),
            "overrides": json.dumps(worker.overrides),
            "sandbox": worker.sandbox,
            "level": worker.level,
            "origin": json.dumps(worker.origin),
        }
        changed = update(workers).where(workers.c.uid == worker.uid).values(**values)
        return self._session.run(changed) == 1

    def set_rules(self, uid: str, rules: Sequence[AddedRule]) -> bool:
        """Replace what people have added to its policy; False if the worker does not exist."""
        changed = update(workers).where(workers.c.uid == uid).values(rules=json.dumps(rules))
        return self._session.run(changed) == 1

    def set_exceeded(self, uid: str, exceeded: str) -> bool:
        """Store the limit for which the worker was ended; False if the worker does not exist."""
        changed = update(workers).where(workers.c.uid == uid).values(exceeded=exceeded)
        return self._session.run(changed) == 1

    def set_level(self, uid: str, level: str) -> bool:
        """Store the proven level of the sandbox; False if the worker does not exist."""
        changed = update(workers).where(workers.c.uid == uid).values(level=level)
        return self._session.run(changed) == 1

    def set_token(self, uid: str, token_sha256: str) -> bool:
        """Replace the token that opens the worker's door; False if the worker does not exist."""
        changed = update(workers).where(workers.c.uid == uid).values(token_sha256=token_sha256)
        return self._session.run(changed) == 1

    def worker_by_token(self, token_sha256: str) -> str:
        """Uid of the worker whose token has that hash, "" if there is none."""
        return self._session.scalar(_BY_TOKEN, token=token_sha256) or ""

    def remove_worker(self, uid: str) -> None:
        """Forget how to start the worker; its agent stays."""
        self._session.run(delete(workers).where(workers.c.uid == uid))
