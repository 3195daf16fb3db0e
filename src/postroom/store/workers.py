"""The rows from which a worker can be started again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from postroom.store.schema import workers

RUNNING = "running"
STOPPED = "stopped"
REVOKED = "revoked"


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
        origin: `path` of the template, and the person's `name`, `project`, `sandbox`, `isolation`.
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


_COLUMNS = [workers.c[item.name] for item in fields(WorkerRecord)]


_DOCUMENTS = ("files", "overrides", "origin")


def _record(row: RowMapping) -> WorkerRecord:
    values = dict(row)
    values |= {name: json.loads(values[name]) for name in _DOCUMENTS}
    return WorkerRecord(**values)


def add_worker(connection: Connection, worker: WorkerRecord) -> None:
    """Store a new worker; its agent must exist."""
    values = asdict(worker)
    values |= {name: json.dumps(values[name]) for name in _DOCUMENTS}
    connection.execute(insert(workers).values(**values))


def worker_by_uid(connection: Connection, uid: str) -> WorkerRecord | None:
    """The worker with that uid."""
    row = connection.execute(select(*_COLUMNS).where(workers.c.uid == uid)).mappings().first()
    return None if row is None else _record(row)


def all_workers(connection: Connection, *, desired: str = "") -> list[WorkerRecord]:
    """All workers, oldest first; with `desired` only those with that wish."""
    found = select(*_COLUMNS).order_by(workers.c.created_at, workers.c.uid)
    if desired:
        found = found.where(workers.c.desired == desired)
    return [_record(row) for row in connection.execute(found).mappings()]


def set_desired(connection: Connection, uid: str, desired: str) -> bool:
    """Store the desired state; False if the worker does not exist."""
    changed = update(workers).where(workers.c.uid == uid).values(desired=desired)
    return connection.execute(changed).rowcount == 1


def set_begun(connection: Connection, uid: str, at: float) -> bool:
    """Store that a person starts the worker, and clear `exceeded`; False if the worker does not exist."""
    changed = update(workers).where(workers.c.uid == uid).values(begun_at=at, exceeded="")
    return connection.execute(changed).rowcount == 1


def set_template(connection: Connection, worker: WorkerRecord) -> bool:
    """Replace the template, sandbox and level; False if the worker does not exist."""
    values = {
        "template": worker.template,
        "files": json.dumps(worker.files),
        "overrides": json.dumps(worker.overrides),
        "sandbox": worker.sandbox,
        "level": worker.level,
    }
    changed = update(workers).where(workers.c.uid == worker.uid).values(**values)
    return connection.execute(changed).rowcount == 1


def set_exceeded(connection: Connection, uid: str, exceeded: str) -> bool:
    """Store the limit for which the worker was ended; False if the worker does not exist."""
    changed = update(workers).where(workers.c.uid == uid).values(exceeded=exceeded)
    return connection.execute(changed).rowcount == 1


def set_level(connection: Connection, uid: str, level: str) -> bool:
    """Store the proven level of the sandbox; False if the worker does not exist."""
    changed = update(workers).where(workers.c.uid == uid).values(level=level)
    return connection.execute(changed).rowcount == 1


def set_token(connection: Connection, uid: str, token_sha256: str) -> bool:
    """Replace the token that opens the worker's door; False if the worker does not exist."""
    changed = update(workers).where(workers.c.uid == uid).values(token_sha256=token_sha256)
    return connection.execute(changed).rowcount == 1


def worker_by_token(connection: Connection, token_sha256: str) -> str:
    """Uid of the worker whose token has that hash, "" if there is none."""
    found = select(workers.c.uid).where(workers.c.token_sha256 == token_sha256)
    return connection.execute(found).scalar() or ""


def remove_worker(connection: Connection, uid: str) -> None:
    """Forget how to start the worker; its agent stays."""
    connection.execute(delete(workers).where(workers.c.uid == uid))
