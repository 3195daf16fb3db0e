"""The public names of the library: each is there, documents use no others, those without the SDK load none of it."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom_a2a

PLAIN = ["Call", "Caller", "CoreCaller", "CoreServer", "Operations", "RpcError", "subject_of"]
LIBRARY = Path(__file__).parents[2]
README = (LIBRARY / "README.md").read_text(encoding="utf-8")
PUBLIC = re.findall(r"^\| `(postroom_a2a[\w.]*)` \|", README, re.MULTILINE)
"""The modules that the README calls public."""
SHOWN = [LIBRARY / "README.md", *(LIBRARY.parent / "docs").glob("*.md")]
PROGRAMS = [*(LIBRARY.parent / "examples").glob("*.py")]


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_name_is_there(module: str):
    package = importlib.import_module(module)
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)


def test_documents_and_examples_use_public_names_only():
    inner = {
        (path.name, *found)
        for path in (*SHOWN, *PROGRAMS)
        for source in sources(path)
        for found in imported(source)
        if not is_public(*found)
    }
    assert inner == set()


def test_documents_name_public_names_only():
    inner = {
        (path.name, name)
        for path in SHOWN
        for name in re.findall(r"\b(postroom_a2a\.[\w.]*\w)", path.read_text(encoding="utf-8"))
        if name not in PUBLIC and not is_public(*name.rsplit(".", 1))
    }
    assert inner == set()


def sources(path: Path) -> list[str]:
    """The Python that a file is, or shows."""
    text = path.read_text(encoding="utf-8")
    return (
        [text]
        if path.suffix == ".py"
        else re.findall(r"```python[^\n]*\n(.*?)```", text, re.DOTALL)
    )


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Each module of the library that the source imports from, and the name; "" for the module itself."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found = [(alias.name, "") for alias in names]
            case ast.ImportFrom(level=0, module=str(module), names=names):
                found = [(module, alias.name) for alias in names]
            case _:
                continue
        yield from (each for each in found if each[0].split(".")[0] == "postroom_a2a")


def is_public(module: str, name: str) -> bool:
    """Whether somebody may import that."""
    return module in PUBLIC and (not name or name in importlib.import_module(module).__all__)


def test_the_table_of_modules_names_what_is_public():
    assert sorted(postroom_a2a._MODULES) == sorted(postroom_a2a.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = postroom_a2a.nothing


@pytest.mark.requirement("package-footprint-bounded")
def test_serving_and_calling_frames_loads_neither_sdk_nor_protobuf():
    program = (
        f"import sys; from postroom_a2a import {', '.join(PLAIN)}; "
        "sys.exit(any(name.split('.')[0] in {'a2a', 'google', 'pydantic'} for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
