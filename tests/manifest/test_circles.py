"""Modules do not import each other in circles: who reads one would have to read them all."""

from __future__ import annotations

import grimp

from tests.docs.pages import ROOT

MOST, LARGEST = 2, 3
"""Circles that may be, and the modules of one: of the library `nats.inbound` and `nats.subscriptions`, which are two
halves of one thing, and the ways of the client's wire to its WebSockets."""


def test_modules_import_each_other_in_few_small_circles() -> None:
    graph = grimp.build_graph(
        "postroom", "postroom_a2a", cache_dir=None
    )  # imports for types and in functions, too
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    found = circles(imported)

    assert len(found) <= MOST, found
    assert max(map(len, found), default=0) <= LARGEST, found


LONG = {"store/schema.py": 740, "protocol/shapes.py": 1250, "protocol/verbs.py": 662}
"""Modules over 600 lines: tables, which are looked up and not read."""


def test_no_module_but_three_tables_is_over_600_lines() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "a2a" / "src").rglob("*.py")]
    lines = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in sources}
    named = {"/".join(file.parts[-2:]): found for file, found in lines.items() if found > 600}

    assert len(sources) > 500
    assert {name: found for name, found in named.items() if found > LONG.get(name, 600)} == {}


def test_a_circle_is_found_whole() -> None:
    imported = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}

    assert circles(imported) == [{"a", "b", "c"}]


def circles(imported: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules of which each imports all others, directly or not."""
    behind = {module: reached(module, imported) for module in imported}
    found: list[set[str]] = []
    for module, others in behind.items():
        circle = {other for other in others if module in behind[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


def reached(module: str, imported: dict[str, set[str]]) -> set[str]:
    """What a module imports, directly or not; itself only in a circle."""
    seen: set[str] = set()
    ahead = [*imported[module]]
    while ahead:
        if (one := ahead.pop()) not in seen:
            seen.add(one)
            ahead += imported[one]
    return seen
