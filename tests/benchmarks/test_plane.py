"""The comparison of two control planes: here both sides are this checkout, and no test judges a time."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from benchmarks.__main__ import main
from benchmarks.fill import Traffic, fill
from benchmarks.plane import comparison, costs, inside, pages
from benchmarks.plane.findings import BEFORE, NOW, Findings, table
from benchmarks.plane.profiling import shares
from benchmarks.plane.sides import OWN, PROJECT, side
from benchmarks.report import Sheet, document
from postroom.store.migrate import create
from postroom.store.schema import a2a_task_events, a2a_tasks, messages
from postroom.store.sqlite import SQLitePlace

SMALL = {
    "rounds": 1,
    "counts": {1: 2, 4: 8},
    "sends": 3,
    "stored": 2,
    "starts": 1,
    "waiters": (40, 40),
    "many": 300,
}


def quick(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str
) -> dict[str, Any]:
    results = tmp_path / "results"
    monkeypatch.setattr(comparison, "QUICK", SMALL)
    monkeypatch.setattr(costs, "WARM", 2)
    monkeypatch.setattr(pages, "FEW", 100)
    for module in (costs, inside):
        monkeypatch.setattr(module, "WORKERS", 1)
    words = ("--quick", "--results", str(results), "--before", OWN, "--rows", rows, *words)

    # Not below pytest's folder, which the user that PostgreSQL runs as may not enter.
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o711)
        monkeypatch.setattr("tempfile.tempdir", scratch)
        assert main(["plane", *words]) == 0
        assert list(Path(scratch).iterdir()) == []
        monkeypatch.setattr("tempfile.tempdir", None)
    return json.loads((results / "plane.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_both_sides_answer_and_each_measure_has_its_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = quick("costs", tmp_path, monkeypatch)

    metrics = {row["metric"] for row in result["rows"]}
    for work in ("message x1", "message x4", "task x1", "task x4"):
        for part in ("plane", "nats", "sidecars", "rate", "p50"):
            assert {f"{work}: {part}: {BEFORE}", f"{work}: {part}: {NOW}"} <= metrics
    assert len(result["ratios"]) == len(metrics) / 2


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rows", ["sends,stored", "transactions", "waiters", "pages", "starts"])
def test_the_other_rows_are_measured_on_both_sides(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = quick(rows, tmp_path, monkeypatch)

    assert result["ratios"]
    metrics = [row["metric"] for row in result["rows"]]
    assert {metric.rpartition(": ")[2] for metric in metrics} == {BEFORE, NOW}
    # Both databases, where the programs of PostgreSQL are there, which come with the tools of developers.
    assert (rows != "pages") or {"lite", "pg"} == {metric.partition(" ")[0] for metric in metrics}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_profile_says_which_share_each_part_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(comparison, "QUICK", SMALL | {"counts": {1: 20}})

    comparison.run(Sheet(), quick=True, words=["--profile", "--before", "", "--after", OWN])

    said = capsys.readouterr().out
    assert "SQL" in said
    assert "writes" in said


def test_the_table_fits_into_eighty_columns() -> None:
    found, sheet = Findings(), Sheet()
    for value in (12345.678, 23456.789):
        found.keep("up, existing state: ready", BEFORE, value, "ms", "<= 1.1")
        found.keep("up, existing state: ready", NOW, 3 * value, "ms", "<= 1.1")
        found.keep("page: only now", NOW, value, "ms")
    found.tell(sheet)

    lines = table(document("plane", sheet, load_before=0.5, load_after=0.6)).splitlines()

    assert max(map(len, lines)) <= 80
    assert any("3.00  3.00-3.00" in line and line.endswith("<= 1.1") for line in lines)


def test_a_metric_of_one_side_has_no_ratio() -> None:
    found, sheet = Findings(), Sheet()
    found.keep("page", NOW, 1.0, "ms")
    found.tell(sheet)

    assert sheet.ratios == {}
    assert list(sheet.rows) == [f"page: {NOW}"]


def test_a_side_may_be_this_checkout_and_no_side_is_made_of_what_is_no_commit() -> None:
    own = side(NOW, OWN)

    assert (own.python, own.tree) == (sys.executable, PROJECT)
    with pytest.raises(RuntimeError, match="neither a commit"):
        side(BEFORE, "no-such-commit")


def test_a_frame_belongs_to_the_innermost_part_that_it_names() -> None:
    stacks = [
        ("main", ["/x/asyncio/events.py:1:run", "/y/src/postroom/gateway/server.py:2:pump"], 30),
        ("main", ["/y/a2a/src/postroom_a2a/nats/parser.py:3:feed"], 20),
        ("store-read_0", ["/z/site-packages/sqlalchemy/engine.py:4:execute"], 50),
    ]

    lines = shares(stacks)

    assert "   50.0 %  SQL threads" in lines
    assert "   20.0 %  NATS client" in lines
    assert "   30.0 %  gateway/server.py pump" not in lines


def test_the_rows_of_made_traffic_are_those_that_were_asked_for() -> None:
    place = SQLitePlace(None)
    place.alter("", lambda connection: create(connection, place, ""))
    connection = place.connect(writes=True)
    traffic = Traffic("0" * 32, ["1" * 32, "2" * 32], first=1000, at=1.0)

    assert fill(connection, traffic.exchanges(5)) == 10
    assert fill(connection, traffic.tasks(3, changes=2)) == 3 * (1 + 1 + 4)

    found = [
        connection.session.scalar(select(func.count()).select_from(each))
        for each in (messages, a2a_tasks, a2a_task_events)
    ]
    assert found == [13, 3, 12]
