"""What waits out an outage says so once."""

from __future__ import annotations

import logging

import pytest

from postroom.audit import patience
from postroom.errors import BusDisconnected

pytestmark = pytest.mark.anyio


async def test_an_outage_is_logged_once_with_its_organisation_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(patience, "FIRST", 0.0)
    caplog.set_level(logging.INFO)
    tries = 0

    async def step() -> None:
        nonlocal tries
        tries += 1
        if tries < 5:
            raise BusDisconnected("there is no connection to the bus")

    await patience.insist(step, "the audit copy", "research")

    assert tries == 5
    assert [record.getMessage() for record in caplog.records] == [
        "the audit copy of org research waits: there is no connection to the bus",
        "the audit copy of org research goes on",
    ]
