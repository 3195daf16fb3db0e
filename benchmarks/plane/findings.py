"""What was found of both sides, round by round, and how it is told."""

from __future__ import annotations

from typing import Any

from benchmarks.report import Sheet
from benchmarks.spread import Spread, paired

BEFORE, NOW = "before", "now"
_TITLE, _VALUE, _RATIO = 31, 8, 6


class Findings:
    """Values of the two sides by metric.

    Attributes:
        targets: what the ratio of a metric is to reach, as `<= 0.4` or `>= 2.3`, in the order of the table.
    """

    def __init__(self) -> None:
        self.targets: dict[str, str] = {}
        self._values: dict[str, dict[str, list[float]]] = {}
        self._units: dict[str, str] = {}

    def keep(self, metric: str, side: str, value: float, unit: str, target: str = "") -> None:
        """Add one round's value of one side; `target` is of the ratio now / before."""
        self._values.setdefault(metric, {}).setdefault(side, []).append(value)
        self._units[metric] = unit
        self.targets.setdefault(metric, target)

    def tell(self, sheet: Sheet) -> None:
        """Write down what was found: each side, and the ratio of each round where both took part."""
        for metric, sides in self._values.items():
            for side, values in sides.items():
                sheet.add(f"{metric}: {side}", values, self._units[metric])
            name = f"{metric} ({target})" if (target := self.targets[metric]) else metric
            now, before = sides.get(NOW, []), sides.get(BEFORE, [])
            if now and len(now) == len(before) and all(before):
                sheet.ratios[name] = Spread.of(paired(now, before))


def table(result: dict[str, Any]) -> str:
    """The result for a terminal of 80 columns: each metric before and now, and the ratio with its range."""
    versions = " ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [
        f"{result['name']}: {result['date']}, {result['cores']} cores",
        f"load {result['load_before']} before, {result['load_after']} after",
        versions,
        "",
        f"{'':<{_TITLE}}{BEFORE:>{_VALUE}}{NOW:>{_VALUE}}{'ratio':>{_RATIO + 1}}  {'range':<11} target",
    ]
    targets = {name.partition(" (")[0]: name for name in result["ratios"]}
    shown: dict[str, dict[str, dict[str, Any]]] = {}
    for row in result["rows"]:
        metric, _, side = row["metric"].rpartition(": ")
        shown.setdefault(metric, {})[side] = row
    for metric, sides in shown.items():
        unit = next(iter(sides.values()))["unit"]
        title = f"{metric}, {unit}" if unit else metric
        cells = [f"{sides[side]['value']:g}" if side in sides else "" for side in (BEFORE, NOW)]
        line = f"{title:<{_TITLE}}" + "".join(f"{cell:>{_VALUE}}" for cell in cells)
        if (name := targets.get(metric)) is not None:
            least, greatest = result["ratio_ranges"][name]
            line += (
                f"{result['ratios'][name]:>{_RATIO + 1}.2f}  {f'{least:.2f}-{greatest:.2f}':<11}"
            )
            target = name.partition(" (")[2].rstrip(")")
            line += f" {target}"
        lines.append(line.rstrip())
    return "\n".join([*lines, "", *(f"- {note}" for note in result["notes"])])
