"""The results that are committed, and the sheet that they are written from. No test here judges a time."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import NAMES, RESULTS
from benchmarks.report import Sheet, document, table, write
from benchmarks.spread import Spread, paired, percentile

KEYS = {"name", "date", "cores", "load_before", "load_after", "versions", "rows", "ratios"}


def check_shape(result: dict[str, Any]) -> None:
    assert set(result) >= KEYS
    assert datetime.fromisoformat(result["date"]).tzinfo is not None
    assert {"python", "nats_server", "postroom", "nats_py"} == set(result["versions"])
    assert result["rows"]
    for row in result["rows"]:
        assert isinstance(row["metric"], str)
        assert isinstance(row["unit"], str)
        assert row["min"] <= row["value"] <= row["max"]
    assert all(isinstance(value, float) for value in result["ratios"].values())


@pytest.fixture
def sheet() -> Sheet:
    sheet = Sheet()
    sheet.add("floor", [1.0, 2.0, 3.0], "ms")
    sheet.add("ours", [2.0, 6.0, 6.0], "ms")
    sheet.compare("ours/floor", [2.0, 6.0, 6.0], [1.0, 2.0, 3.0])
    sheet.note("made up")
    return sheet


@pytest.mark.parametrize("name", NAMES)
def test_each_benchmark_has_a_committed_result_of_the_right_shape(name: str) -> None:
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))

    check_shape(result)
    assert name == result["name"]


def test_no_committed_result_is_of_a_benchmark_that_is_gone() -> None:
    assert set(NAMES) == {path.stem for path in RESULTS.glob("*.json")}


def test_a_sheet_is_written_as_a_result_of_the_right_shape(sheet: Sheet, tmp_path: Path) -> None:
    path = write(document("made-up", sheet, load_before=0.5, load_after=0.6), tmp_path)

    result = json.loads(path.read_text(encoding="utf-8"))
    check_shape(result)
    assert result["ratios"] == {"ours/floor": 2.0}
    assert result["rows"][0]["value"] == 2.0


def test_a_written_result_has_a_row_a_line(sheet: Sheet, tmp_path: Path) -> None:
    result = document("made-up", sheet, load_before=0.5, load_after=0.6)
    text = write(result, tmp_path).read_text(encoding="utf-8")

    assert json.loads(text) == result
    assert sum('"metric"' in line for line in text.splitlines()) == len(result["rows"])


def test_the_table_shows_each_metric_ratio_and_note(sheet: Sheet) -> None:
    shown = table(document("made-up", sheet, load_before=0.5, load_after=0.6))

    assert all(word in shown for word in ("floor", "ours/floor", "made up", "load 0.5 before"))


def test_a_ratio_compares_what_was_measured_in_the_same_round() -> None:
    assert paired([2.0, 6.0], [1.0, 2.0]) == [2.0, 3.0]
    assert Spread(1.0, 2.0, 9.0, 3) == Spread.of([9.0, 1.0, 2.0])


def test_the_99th_percentile_of_a_hundred_values_leaves_out_the_largest() -> None:
    values = [float(value) for value in range(1, 101)]

    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 0.5) == 50.0
    assert percentile([3.0], 0.99) == 3.0
