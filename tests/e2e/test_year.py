"""A post room after a year of busy days starts as fast as an empty one, and is as large as the documents say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.e2e.conftest import PostRoom
from tools.year import fill

DAYS = int(os.environ.get("POSTROOM_TEST_DAYS", "365"))
OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.requirement("mail-retention-covered")
def test_a_year_of_busy_days_starts_within_three_seconds_and_fits_what_is_said(
    room: PostRoom,
) -> None:
    room.up()
    room.run("down")
    fill(room.state, DAYS)
    room.up()
    # Of the processor, since the machine may have other work.
    assert processor_seconds(room.server["pid"]) < 3.0
    said = re.search(r"about (\d+) MB of database for each day", OPERATING.read_text())
    assert said
    a_day = sum(path.stat().st_size for path in room.state.glob("*.db*")) / DAYS / 1e6
    assert a_day == pytest.approx(int(said[1]), rel=0.25)
