"""A message that somebody has changed in the database is not shown, whatever was changed; receipts change its state."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from postroom.mail.integrity import check_all, sign_all
from postroom.protocol.receipts import State
from postroom.store.database import Database
from postroom.store.messages import NOT_SHOWN, MessageRow
from postroom.store.ports import Place
from postroom.store.schema import messages
from postroom.store.signing import FIRST, Signer, mark_of

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("post-message-genuine")]

ANN, BOB = "a" * 32, "b" * 32
KEY, LATER = b"k" * 32, b"l" * 32

STATE = {"state", "reason", "final", "updated_at", "receipt"}
CHANGED = {
    each.name: {"str": "zz", "float": 7.25, "int": 99, "bool": True}[str(each.type)]
    for each in fields(MessageRow)
    if each.name not in {*STATE, "signature"}
}


def message(seq: int = 1, **more: Any) -> MessageRow:
    given: dict[str, Any] = {
        "seq": seq,
        "id": f"{seq:032x}",
        "sender": ANN,
        "recipient": BOB,
        "text": "pay 10\0 now",
        "message": '{"parts": [{"text": "pay 10\\u0000 now"}]}',
        "sent_at": 1.1,
        "stored_at": 1700000000.123456,
        "updated_at": 1700000000.123456,
    }
    return MessageRow(**{**given, **more})


@pytest.fixture
async def database(place: Place) -> Database:
    return Database(place, Signer("default", [KEY]))


async def change(database: Database, **values: Any) -> None:
    await database.write(lambda store: store.session.run(update(messages).values(**values)))


@pytest.mark.parametrize("column", CHANGED)
async def test_a_changed_column_makes_the_message_altered(database: Database, column: str) -> None:
    async with database:
        await database.write(lambda store: store.messages.insert_message(message()))
        await change(database, **{column: CHANGED[column]})
        (found,) = await database.read(
            lambda store: store.messages.messages_at([int(column == "seq") * 98 + 1])
        )
        assert (found.altered, found.text) == (True, NOT_SHOWN)
        assert "pay" not in repr(found)
        checked = await check_all(database)
        assert (checked.number, checked.altered) == (1, 1)


async def test_a_message_is_genuine_over_every_state_and_with_any_text(database: Database) -> None:
    async with database:
        await database.write(lambda store: store.messages.insert_message(message()))
        await database.write(
            lambda store: store.messages.set_state(
                1, State.SEEN, final=True, reason="hook", at=9.5, receipt=1
            )
        )
        found = await database.read(lambda store: store.messages.message_at(1))
        assert found is not None
        assert (found.altered, found.state, found.text) == (False, "seen", "pay 10\ufffd now")
        assert (await check_all(database)).altered == 0


async def test_a_signature_of_another_organisation_or_row_counts_for_nothing(
    tmp_path: Path,
) -> None:
    one, other = Signer("one", [KEY]), Signer("other", [KEY])
    row = message()
    signed = message(signature=one.sign(row))
    assert one.holds(signed)
    assert not other.holds(signed)
    assert not one.holds(message(2, signature=one.sign(row)))
    assert not one.holds(message(signature=one.sign(row).replace("::", f":{FIRST}:")))
    for wrong in ("", "::", "altered", f"{one.sign(row)[:9]}:", one.sign(row)[:-1]):
        assert not one.holds(message(signature=wrong))


async def test_rows_from_before_are_signed_once_and_marked_so(database: Database) -> None:
    async with database, Database(database.place) as unsigned:
        await unsigned.write(lambda store: store.messages.insert_message(message()))
        assert (await check_all(database)).altered == 1
        assert database.signer is not None
        database.signer.unsigned = True
        assert await sign_all(database) == 1
        database.signer.unsigned = False
        assert await sign_all(database) == 0
        checked = await check_all(database)
        assert (checked.number, checked.first, checked.altered) == (1, 1, 0)


async def test_after_a_rotation_all_are_signed_by_the_new_key_and_what_was_altered_stays_so(
    database: Database,
) -> None:
    async with database:
        for seq in range(1, 604):
            await database.write(lambda store, seq=seq: store.messages.insert_message(message(seq)))
        await database.write(
            lambda store: store.session.run(
                update(messages).where(messages.c.seq == 7).values(text="pay 90")
            )
        )
        assert database.signer is not None
        database.signer.use([LATER, KEY])
        assert (await check_all(database)).altered == 1
        assert await sign_all(database) == 602
        database.signer.use([LATER])
        checked = await check_all(database)
        assert [one.row.seq for one in checked.named] == [7]
        assert mark_of(checked.named[0].row) == ""
