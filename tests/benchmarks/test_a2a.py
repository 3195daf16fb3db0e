"""The comparison of A2A's transports: its peers in processes of their own, its table, its picture.

The peers run here on what the project's own environment has; the others are left out.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.a2a import plot, table
from benchmarks.a2a.children import OWN_RUNNER, Cost, Pair, PeerFailed, nats_server
from benchmarks.a2a.contenders import CONTENDERS, TYPESCRIPT, Work
from benchmarks.a2a.findings import CLIENT, RATE, SERVER, Findings
from benchmarks.a2a.peers.kinds import MODULES, Options
from benchmarks.a2a.peers.load import LEAST, Order, Turn, turn
from benchmarks.a2a.targets import tell
from benchmarks.report import Sheet, document
from benchmarks.spread import Spread

pytestmark = pytest.mark.anyio

BY_NAME = {contender.name: contender for contender in CONTENDERS}
MESSAGE = Work("message", 200, 16)
STREAM = Work("stream", 200, 16)


def found(rate: float) -> tuple[Turn, Cost]:
    return Turn(10, rate, 1.0, 1.0, 2.0, 0.5, 0.6), Cost(10.0, 20.0, 30.0)


@pytest.fixture
def result() -> dict[str, Any]:
    findings = Findings()
    for name, rate in (("nats-ours", 5000.0), ("jsonrpc-sdk", 400.0)):
        for work in (MESSAGE, STREAM):
            findings.keep(BY_NAME[name], work, found(rate))
    sheet = Sheet()
    findings.tell(sheet, CONTENDERS, (MESSAGE, STREAM))
    tell(sheet, findings)
    return document("a2a", sheet, load_before=0.5, load_after=0.6)


def test_every_contender_has_a_name_and_a_title_of_its_own_and_a_module() -> None:
    assert len(CONTENDERS) == len(BY_NAME)
    assert len(CONTENDERS) == len({contender.title for contender in CONTENDERS})
    assert {contender.kind for contender in CONTENDERS} <= {*MODULES, TYPESCRIPT}


def test_the_table_has_a_block_for_each_work_and_a_line_for_each_contender(
    result: dict[str, Any],
) -> None:
    lines = table(result).splitlines()

    assert lines.count("Message, 200 B") == 1
    ours = [line.split() for line in lines if line.strip().startswith("NATS, ours")]
    assert [line[2] for line in ours] == ["5000", "5000"]
    assert any("first event" not in line and "1st p50" in line for line in lines)


def test_a_ratio_is_told_with_its_target_if_both_sides_took_part(result: dict[str, Any]) -> None:
    assert result["ratios"]["product, calls/s, Message, 16 (>= 10)"] == 12.5
    assert not any("gRPC" in name for name in result["ratios"])


def test_the_picture_is_well_formed_svg_with_a_bar_for_each_value(result: dict[str, Any]) -> None:
    picture = ET.fromstring(plot(result))

    drawn = [element.get("class") for element in picture.iter() if element.get("class")]
    assert drawn.count("ours") == 1
    assert drawn.count("other") == 1
    assert "prefers-color-scheme: dark" in plot(result)
    assert "nan" not in plot(result)


def test_a_contender_that_could_not_go_on_is_forgotten() -> None:
    findings, contender = Findings(), BY_NAME["rest-sdk"]
    findings.keep(contender, MESSAGE, found(1.0))

    findings.forget(contender)

    assert findings.values(contender.name, MESSAGE, RATE) == []


def test_measures_of_one_round_are_summed() -> None:
    findings, contender = Findings(), BY_NAME["rest-sdk"]
    findings.keep(contender, MESSAGE, found(1.0))

    assert findings.values(contender.name, MESSAGE, CLIENT, SERVER) == [30.0]
    assert Spread(30.0, 30.0, 30.0, 1) == Spread.of([30.0])


class CountingCaller:
    def __init__(self) -> None:
        self.calls = 0

    async def unary(self, content: str) -> None:
        self.calls += 1

    async def stream(self, content: str) -> float:
        self.calls += 1
        return 0.5


async def test_a_turn_makes_each_place_work_however_short_its_time_is() -> None:
    caller = CountingCaller()

    done = await turn(caller, Order("message", 200, 8, 0.0))

    assert done.count == caller.calls == LEAST * 8


async def test_a_turn_stops_at_its_limit_and_tells_when_the_first_event_came() -> None:
    done = await turn(CountingCaller(), Order("stream", 200, 4, 60.0, limit=10))

    assert done.count == 10
    assert done.first_p50 == 500.0


@pytest.mark.parametrize(
    "name",
    [
        "raw-nats",
        pytest.param("jsonrpc-bare-sdk", marks=pytest.mark.slow),
        pytest.param("raw-jetstream", marks=pytest.mark.slow),
        pytest.param("rest-trivial", marks=pytest.mark.slow),
    ],
)
async def test_a_contender_does_its_works_in_processes_of_its_own(
    name: str, tmp_path: Path
) -> None:
    contender = BY_NAME[name]
    async with nats_server(tmp_path) as (bus, pid), AsyncExitStack() as stack:
        options = Options(contender.kind, contender.handler, bus, name=contender.name, uvloop=False)
        pair = await Pair.start(stack, OWN_RUNNER, options, tmp_path, pid)
        for work in contender.works:
            done, cost = await pair.turn(Order(work, 200, 2, 30.0, limit=4))

            assert done.count == 4
            assert cost.client > 0


async def test_a_peer_that_cannot_start_says_why(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        options = Options("unknown", uvloop=False)
        with pytest.raises(PeerFailed, match="KeyError"):
            await Pair.start(stack, OWN_RUNNER, options, tmp_path)
