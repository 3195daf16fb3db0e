"""Put together the project of the stand-alone distribution `postroom-a2a` from this repository.

It holds `postroom.a2a` as far as its public names reach, and what that imports: the import closure, read from the
source. `python -m tools.standalone FOLDER` writes a project from which any build front end makes wheel and sdist.
"""

from __future__ import annotations

import argparse
import ast
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGING = ROOT / "packaging" / "a2a"
PACKAGE = "postroom.a2a"

_MODULE = re.compile(r"postroom(\.\w+)+")


def file_of(module: str) -> Path | None:
    """The file of a module or package, None where there is none."""
    base = SOURCE.joinpath(*module.split("."))
    found = (path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file())
    return next(found, None)


def named(path: Path) -> Iterator[str]:
    """What a file imports of the project, wherever it says so; a text that is a module's whole name counts too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(level=0, module=str(module), names=names):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Constant(value=str(text)) if _MODULE.fullmatch(text):
                yield text


def closure(package: str = PACKAGE) -> dict[str, Path]:
    """Every module that importing `package` and using its public names can load, with its file."""
    found: dict[str, Path] = {}
    waiting = [package]
    while waiting:
        module = waiting.pop()
        path = file_of(module)
        if path is None or module in found or not module.startswith("postroom"):
            continue
        found[module] = path
        waiting.extend(named(path))
        if "." in module:
            waiting.append(module.rpartition(".")[0])
    return found


def assemble(folder: Path) -> None:
    """Write the project into `folder`, which may not exist yet."""
    folder.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(PACKAGING / name, folder)
    shutil.copy(ROOT / "LICENSE", folder)
    for path in [*closure().values(), SOURCE / "postroom" / "py.typed"]:
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def main(argv: Sequence[str] | None = None) -> int:
    """Assemble the project."""
    parser = argparse.ArgumentParser(description="Put together the project of postroom-a2a.")
    parser.add_argument("folder", type=Path, help="that the project is written into; new")
    assemble(parser.parse_args(argv).folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
