"""Pages and searches among 100,000 messages to a reader, beside those among 100: in one process, at the database.

What HTTP adds is the same for both, so it would only make the ratio smaller. SQLite, and PostgreSQL where its address
is given.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from string import ascii_lowercase

from benchmarks.report import Sheet
from postroom.mail import views
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.migrate import migrate
from postroom.store.ports import Place
from postroom.store.postgres.connection import Address
from postroom.store.postgres.place import PostgresPlace
from postroom.store.records import PostRow
from postroom.store.signing import Signer
from postroom.store.sqlite import SQLitePlace

FEW, MANY, QUICK = 100, 100_000, 5_000
ROUNDS = 30
PAGE = 20
"""Entries of a page: each list has so many, also among 100 messages."""
BATCH = 256
"""Messages of one transaction, as the fold has them."""

READER = "a" * 32
PEERS = ["b" * 32, "c" * 32, "d" * 32]
RARE, FREQUENT = "zebrafish", "frequent"
RARE_EVERY = 20_000
"""Messages of which one has the rare word."""

PAGES: dict[str, Callable[[Store], object]] = {
    "inbox": lambda store: views.mails(
        store, store.messages.inbox(READER, unread=False, limit=PAGE)
    ),
    "unread": lambda store: views.mails(
        store, store.messages.inbox(READER, unread=True, limit=PAGE)
    ),
    "archive": lambda store: views.mails(
        store, store.messages.inbox(READER, unread=False, archived=True, limit=PAGE)
    ),
    "threads": lambda store: views.threads(store, READER, store.threads.page(READER, 0, PAGE)),
    "chat": lambda store: views.mails(store, store.messages.chat(READER, PEERS[0], limit=PAGE)),
    "feed": lambda store: views.posts(store, store.records.project_posts("main", limit=PAGE)),
}
SEARCHES: dict[str, Callable[[Store], object]] = {
    "a rare word": lambda store: _found(store, RARE),
    "a frequent word": lambda store: _found(store, FREQUENT),
    "a word that nobody said": lambda store: _found(store, "unsaidword"),
    "two letters": lambda store: _found(store, "et"),
    "a frequent word of one's own": lambda store: _found(store, FREQUENT, READER),
}


def measure(sheet: Sheet, *, quick: bool, url: str = "") -> None:
    """Measure; takes about two minutes with PostgreSQL, at the address `url`."""
    with tempfile.TemporaryDirectory() as scratch:
        many = QUICK if quick else MANY
        places: dict[str, Callable[[int], Place]] = {
            "SQLite": lambda count: SQLitePlace(_folder(scratch, count) / "projection.db")
        }
        if url:
            places["PostgreSQL"] = lambda count: PostgresPlace(Address.parse(url), f"n{count}")
        for name, place in places.items():
            asyncio.run(_measure(sheet, name, place, many))
    sheet.note(
        f"Pages of {PAGE}, among {many:,} messages to a reader and as many by it, beside {FEW}."
    )


def _folder(scratch: str, count: int) -> Path:
    made = Path(scratch) / str(count)
    made.mkdir(exist_ok=True)
    return made


async def _measure(sheet: Sheet, name: str, place: Callable[[int], Place], many: int) -> None:
    signer = Signer("default", [secrets.token_bytes(32)])
    for count in (FEW, many):
        async with Database(place(count), signer) as database:
            await migrate(database)
            await _fill(database, count)
    # Opened anew, as after a start: nothing is left in the files beside the database.
    async with Database(place(FEW), signer) as small, Database(place(many), signer) as large:
        for page, ask in PAGES.items():
            few, much = await _both(small, large, ask)
            sheet.add(f"{name}: {page} of {many}", much, "ms")
            sheet.compare(f"{name}: {page} of {many} / of {FEW}", much, few)
        for search, ask in SEARCHES.items():
            _, much = await _both(small, large, ask)
            sheet.add(f"{name}: search of {search}", much, "ms")


async def _both(
    small: Database, large: Database, ask: Callable[[Store], object]
) -> tuple[list[float], list[float]]:
    """Milliseconds in each round, both in turns."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS + 3):
        for database, took in zip((small, large), found, strict=True):
            begun = time.perf_counter()
            await database.read(ask)
            if number >= 3:  # the first ones fill caches
                took.append(1000 * (time.perf_counter() - begun))
    return found


def _found(store: Store, word: str, party: str = "") -> list[views.Mail]:
    parties = [party] if party else []
    return views.mails(store, store.messages.search(words=[word], parties=parties, limit=PAGE))


async def _fill(database: Database, count: int) -> None:
    rows = _rows(count)
    while some := list(itertools.islice(rows, BATCH)):
        await database.fold(lambda store, some=some: _keep(store, some))


def _keep(store: Store, rows: list[MessageRow]) -> None:
    for row in rows:
        store.messages.insert_message(row)
        post = PostRow(row.seq, row.id, "main", row.sender, row.text, row.message, row.sent_at)
        store.records.insert_post(post)
    away = [row.seq for row in rows if row.seq % 8 == 1]
    store.reading.archive(READER, away, 1.0)


def _rows(count: int) -> Iterator[MessageRow]:
    chosen = random.Random(1)
    words = ["".join(chosen.choices(ascii_lowercase, k=chosen.randint(2, 9))) for _ in range(5000)]
    for seq in range(1, 2 * count + 1):
        said = [*chosen.choices(words, k=20), FREQUENT, *([RARE] if seq % RARE_EVERY == 7 else [])]
        parties = (chosen.choice(PEERS), READER)
        sender, recipient = parties if seq % 2 else parties[::-1]
        yield MessageRow(
            seq=seq,
            id=f"{seq:032x}",
            sender=sender,
            recipient=recipient,
            text=" ".join(said),
            message="{}",
            sent_at=float(seq),
            stored_at=float(seq),
            updated_at=float(seq),
            context_id=f"thread-{chosen.randint(0, max(60, count // 10))}",
            state="accepted" if seq % 3 else "seen",
            final=not seq % 3,
        )
