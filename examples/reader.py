"""Agent `reader`: gets the path of a folder, reads its Python files, answers with what it found.

It speaks JSON lines on stdin and stdout and knows nothing else of Postroom.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LONG = 50
"""Lines from which a function counts as long."""

SHOWN = 5


def functions_over(tree: ast.AST, limit: int) -> Iterator[tuple[str, int, int]]:
    """(name, first line, length in lines) of each function with more than `limit` lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > limit:
                yield node.name, node.lineno, length


def read_folder(folder: Path) -> dict[str, Any]:
    """What is in the Python files below `folder`.

    Shape: `{"files", "lines", "long": [text, ...], "errors": [text, ...]}`.
    """
    found: dict[str, Any] = {"files": 0, "lines": 0, "long": [], "errors": []}
    for path in sorted(folder.rglob("*.py")):
        name = str(path.relative_to(folder))
        try:
            text = path.read_text(encoding="utf-8")
            found["files"] += 1
            found["lines"] += len(text.splitlines())
            for function, line, length in functions_over(ast.parse(text), LONG):
                found["long"].append(f"{name}:{line} {function} ({length} lines)")
        except (SyntaxError, ValueError) as error:
            found["errors"].append(f"{name}: {error}")
        except OSError as error:
            found["errors"].append(f"{name}: {error.strerror}")
    return found


def report(folder: Path) -> str:
    """What was found below `folder`, in words."""
    if not folder.is_dir():
        return f"{folder}: no such folder here"
    found = read_folder(folder)
    counts = f"{found['files']} files, {found['lines']} lines"
    findings = (
        f"{len(found['long'])} functions over {LONG} lines, {len(found['errors'])} syntax errors"
    )
    lines = [f"{folder}: {counts}, {findings}"]
    for entries in (found["long"], found["errors"]):
        lines.extend(f"  {entry}" for entry in entries[:SHOWN])
        if len(entries) > SHOWN:
            lines.append(f"  … and {len(entries) - SHOWN} more")
    return "\n".join(lines)


def say(**line: object) -> None:
    """One JSON line to Postroom."""
    print(json.dumps(line), flush=True)


def main() -> None:
    """Answer every message with a report on the folder that it names."""
    for raw in sys.stdin:
        line = json.loads(raw)
        if line["type"] == "message":
            say(type="status", state="working", detail="reading")
            say(type="reply", to=line["id"], text=report(Path(line["text"].strip())))
            say(type="status", state="idle")
        elif line["type"] == "stop":
            return


if __name__ == "__main__":
    main()
