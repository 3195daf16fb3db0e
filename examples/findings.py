"""What a reviewer finds in one file of Python source. The file is never run, and whatever is in it does no harm."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

KINDS = {
    "syntax-error": "syntax errors",
    "long-function": "long functions",
    "no-docstring": "missing docstrings",
    "todo": "TODO and FIXME comments",
    "unreadable": "unreadable files or folders",
}
"""Kind of a finding to what many of it are called."""

LONG = 50
"""Lines of a function; one that has more is long."""

MAX_BYTES = 1 << 20
"""Larger files are not read: nobody wrote them by hand, and a review has to stay interruptible."""

WIDTH = 120
"""Characters of a finding's text."""

_MARK = re.compile(r"\b(TODO|FIXME)\b")
_MARK_IN_BYTES = re.compile(rb"#.*\b(TODO|FIXME)\b")

_DOCUMENTED_ELSEWHERE = {"overload", "override", "setter", "deleter"}
"""Decorators of functions whose docstring stands with another one."""


class Finding(NamedTuple):
    """One thing that somebody should look at."""

    line: int
    kind: str
    text: str


def findings_in_file(path: Path) -> tuple[int, list[Finding]]:
    """The number of lines in a file, and what was found there, from the top down."""
    try:
        with path.open("rb") as file:
            source = file.read(MAX_BYTES + 1)
    except OSError as error:
        return 0, [Finding(1, "unreadable", error.strerror or str(error))]
    if len(source) > MAX_BYTES:
        return 0, [Finding(1, "unreadable", f"larger than {MAX_BYTES} bytes")]
    is_public = path.stem == "__init__" or not path.stem.startswith("_")
    return len(source.splitlines()), sorted(findings_in(source, is_public=is_public))


def findings_in(source: bytes, *, is_public: bool) -> Iterator[Finding]:
    """What is found in a module's source; `is_public`: others import it, so it wants a docstring."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        yield Finding(error.lineno or 1, "syntax-error", harmless(error.msg))
        return
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, nesting without end
        yield Finding(1, "syntax-error", harmless(str(error)) or "too deeply nested")
        return
    yield from _long_functions(tree)
    if is_public and tree.body:
        yield from _undocumented(tree)
    if _MARK_IN_BYTES.search(source):  # telling comments from strings takes time
        yield from _marked_comments(source)


def _long_functions(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONG:
                yield Finding(
                    node.lineno, "long-function", harmless(f"{node.name}: {length} lines")
                )


def _undocumented(tree: ast.Module) -> Iterator[Finding]:
    if ast.get_docstring(tree, clean=False) is None:
        yield Finding(1, "no-docstring", "the module")
    yield from _undocumented_members(tree, "")


def _undocumented_members(parent: ast.Module | ast.ClassDef, prefix: str) -> Iterator[Finding]:
    for node in parent.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_") or not _DOCUMENTED_ELSEWHERE.isdisjoint(_decorators(node)):
            continue
        if ast.get_docstring(node, clean=False) is None:
            yield Finding(node.lineno, "no-docstring", harmless(prefix + node.name))
        if isinstance(node, ast.ClassDef):
            yield from _undocumented_members(node, f"{prefix}{node.name}.")


def _decorators(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The last name of each decorator: `overload` for `@typing.overload`."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Name):
            yield decorator.id
        elif isinstance(decorator, ast.Attribute):
            yield decorator.attr


def _marked_comments(source: bytes) -> Iterator[Finding]:
    try:
        for token in tokenize.tokenize(io.BytesIO(source).readline):
            if token.type == tokenize.COMMENT and (found := _MARK.search(token.string)):
                yield Finding(token.start[0], "todo", harmless(token.string[found.start() :]))
    except (tokenize.TokenError, SyntaxError):
        return  # it is stricter than the parser in a few places; the rest stays unread


def harmless(text: str, width: int = WIDTH) -> str:
    """`text` on one line of at most `width` characters, with nothing in it that acts on a terminal."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text.strip())
    return line if len(line) <= width else line[: width - 1] + "…"
