"""Find which tests prove which promises, by reading the test files without importing them.

Reading the syntax tree sees every mark at once: also those on tests that are deselected, or in modules that
would need something this machine lacks.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

FOLDERS = ("tests", "a2a/tests")


def marks_in(source: str) -> Iterator[str]:
    """Each id given to a `mark.requirement(...)` call: decorators, `pytestmark` and `pytest.param` alike.

    An id must be a literal; anything else raises ValueError, since a reader could not find it either.
    """
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and _is_requirement_mark(node.func)):
            continue
        if not node.args:
            raise ValueError(f"line {node.lineno}: a requirement mark names at least one id")
        for argument in node.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                raise ValueError(
                    f"line {argument.lineno}: a requirement id must be a string literal"
                )
            yield argument.value


def _is_requirement_mark(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(attr="requirement", value=ast.Attribute(attr="mark") | ast.Name("mark")):
            return True
        case _:
            return False


def scan(root: Path) -> dict[str, list[str]]:
    """Map each marked id to the test files that carry it (paths relative to `root`), both sorted."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in chain.from_iterable((root / folder).rglob("*.py") for folder in FOLDERS):
        name = path.relative_to(root).as_posix()
        try:
            for identifier in marks_in(path.read_text(encoding="utf-8")):
                found[identifier].add(name)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return {identifier: sorted(found[identifier]) for identifier in sorted(found)}
