"""Write requirements/*.txt from pyproject.toml: exact versions with hashes, for every platform, naming no index.

The files are made in an order that keeps them consistent: `dev` first, then `base`, `a2a` and `build` held to the
versions that `dev` chose. `uv` resolves; plain pip installs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = (
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-emit-package=postroom-a2a",  # its folder is in this repository
    "--custom-compile-command=make lock",
    "--quiet",
)


def build_requirements() -> str:
    """The build backend as pyproject.toml asks for it, one requirement a line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return "".join(f"{line}\n" for line in project["build-system"]["requires"])


def compile_file(target: str, *arguments: str, stdin: str | None = None) -> None:
    """Resolve into requirements/<target>, keeping the versions it already pins unless told to upgrade."""
    command = [sys.executable, "-m", "uv", "pip", "compile", *OPTIONS, *arguments]
    command += ["--output-file", f"requirements/{target}"]
    subprocess.run(command, cwd=ROOT, input=stdin, text=True, check=True, stdout=subprocess.DEVNULL)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the four files; `--upgrade` allows newer releases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take newer releases")
    upgrade = ["--upgrade"] if parser.parse_args(argv).upgrade else []
    held = ["--constraints", "requirements/dev.txt", "--upgrade"]
    compile_file("dev.txt", "pyproject.toml", "--extra=test", "--extra=dev", *upgrade)
    compile_file("base.txt", "pyproject.toml", *held)
    compile_file("a2a.txt", "a2a/pyproject.toml", "--extra=sdk", *held)
    compile_file("build.txt", "-", *held, stdin=build_requirements())
    return 0


if __name__ == "__main__":
    sys.exit(main())
