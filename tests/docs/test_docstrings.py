"""Docstrings of methods: each has its own, or that of the declaration which it implements."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.docs.pages import ROOT


def name_of(base: ast.expr) -> str:
    """`Tasks` of `Tasks`, `ports.Tasks` and `Tasks[Row]`."""
    return ast.unparse(base).split("[")[0].rsplit(".", 1)[-1]


def test_a_public_method_has_a_docstring_unless_what_it_implements_has_one():
    bases: defaultdict[str, set[str]] = defaultdict(set)
    said: defaultdict[str, set[str]] = defaultdict(set)
    silent: list[tuple[str, str, str]] = []
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("a2a/src/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
                bases[name_of(node.targets[0])] |= {name_of(node.value)}  # another name of a class
            if not isinstance(node, ast.ClassDef):
                continue
            bases[node.name] |= {name_of(base) for base in node.bases}
            for method in node.body:
                if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if ast.get_docstring(method):
                    said[node.name].add(method.name)
                elif not (node.name.startswith("_") or method.name.startswith("_")):
                    silent.append((str(path.relative_to(ROOT)), node.name, method.name))

    def is_said(of: str, method: str) -> bool:
        return any(method in said[base] or is_said(base, method) for base in bases[of])

    assert [each for each in silent if not is_said(*each[1:])] == []
