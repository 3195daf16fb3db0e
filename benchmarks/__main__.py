"""Run benchmarks: `python -m benchmarks [NAME] [--quick] [--results FOLDER] [the options of NAME]`."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report

NAMES = (
    "sends",
    "floods",
    "up",
    "memory",
    "cli",
    "tasks",
    "a2a",
    "front",
    "gateway",
    "sandboxes",
    "plane",
    "adapters",
    "events",
    "screen",
    "connect",
    "post",
)
"""Each is the module of that name here, with a function `run(sheet, *, quick)`.

It may have `table(result)`, in place of the common table, `plot(result)`, which gives an SVG, and `parse(words)` for
options of its own, whose words `run` then gets, too.
"""

RESULTS = Path(__file__).resolve().parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark or all; each prints a table and writes its result."""
    parser = _parser()
    chosen, words = parser.parse_known_args(arguments)
    folder = chosen.results or (None if chosen.quick else RESULTS)
    for name in [chosen.name] if chosen.name else NAMES:
        benchmark = importlib.import_module(f"benchmarks.{name}")
        if hasattr(benchmark, "parse"):
            benchmark.parse(words)  # says at once what is wrong with them
        elif words:
            parser.error(f"{name} has no {' '.join(words)}")
        measure(name, folder, quick=chosen.quick, words=words)
    return 0


def measure(name: str, folder: Path | None, *, quick: bool, words: Sequence[str] = ()) -> None:
    """Run benchmark `name`, print its table, and write its result into `folder` if there is one."""
    benchmark = importlib.import_module(f"benchmarks.{name}")
    sheet, before, begin = report.Sheet(), report.load(), time.monotonic()
    own = {"words": words} if hasattr(benchmark, "parse") else {}
    benchmark.run(sheet, quick=quick, **own)
    result = report.document(name, sheet, load_before=before, load_after=report.load())
    print(getattr(benchmark, "table", report.table)(result))
    print(f"\n{name}: took {time.monotonic() - begin:.0f} s", end="")
    print(f", written to {report.write(result, folder)}\n" if folder else "\n", flush=True)
    if folder and (plot := getattr(benchmark, "plot", None)):
        (folder / f"{name}.svg").write_text(plot(result), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=NAMES, help="one benchmark; without it all run")
    parser.add_argument(
        "--quick", action="store_true", help="few rounds, to see that it works; writes no result"
    )
    parser.add_argument(
        "--results", type=Path, metavar="FOLDER", help="where to write, instead of results/"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
