"""Messages as blocks of rows. Pure."""

from __future__ import annotations

import time

import pytest

from postroom.tui.talk.blocks import message_block
from postroom_a2a.times import format_time
from tests.client.standin import ME, from_bob, mail


@pytest.mark.requirement("mail-expiry-shown")
def test_a_line_says_until_when_its_message_waits_to_be_seen():
    until = format_time(time.time() + 3599)

    def shown(record: dict[str, object]) -> str:
        (row,) = message_block(record, "k", me=ME["uid"]).rows
        return "".join(span.text for span in row.spans)

    assert shown(mail(1, "hi", expires_at=until)).endswith("accepted · expires in 59 min")
    assert shown(from_bob(1, "hi", expires_at=until)).endswith("an answer · expires in 59 min")
    assert shown(mail(1, "hi", expires_at=until, state="seen")).endswith("· seen")
    assert shown(mail(1, "hi")).endswith("· accepted")
