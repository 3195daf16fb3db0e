"""Build what a release consists of, if everything says the same version.

`python -m tools.release v1.2.3` (or `GITHUB_REF=refs/tags/v1.2.3`) checks that the tag, both projects, each pin of the
library, the package and the newest headings of both CHANGELOG.md agree and that nothing is uncommitted, builds wheel
and sdist of both distributions into dist/, and lists them. Otherwise it says what is wrong and exits 1.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_TAG = re.compile(r"(?:refs/tags/)?v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)")
_HEADING = re.compile(r"^## \[([^\]]+)\]", re.MULTILINE)
_VERSION = re.compile(r'^__version__ = "([^"]+)"', re.MULTILINE)


class NotReady(Exception):
    """The release cannot be made; the text is one line."""


def tag_version(ref: str) -> str:
    """The version that a tag names."""
    found = _TAG.fullmatch(ref)
    if found is None:
        raise NotReady(f"{ref!r} is not the tag of a release: a tag has the form v1.2.3")
    return found[1]


def versions(root: Path) -> dict[str, str]:
    """Every place that states the version, and what it states there."""
    stated = {}
    for name in ("pyproject.toml", "a2a/pyproject.toml"):
        project = tomllib.loads((root / name).read_text(encoding="utf-8"))["project"]
        stated[name] = project["version"]
        extras = project.get("optional-dependencies", {})
        for line in (*project["dependencies"], *itertools.chain(*extras.values())):
            if line.startswith("postroom-a2a") and project["name"] == "postroom":
                pinned, _, version = line.partition("==")
                stated[f"{name} ({pinned})"] = version or "no version"
    places = {
        "src/postroom/__init__.py": _VERSION,
        "CHANGELOG.md": _HEADING,
        "a2a/CHANGELOG.md": _HEADING,
    }
    for name, pattern in places.items():
        found = pattern.search((root / name).read_text(encoding="utf-8"))
        stated[name] = found[1] if found else "none"
    return stated


def check(version: str, stated: Mapping[str, str], changes: str) -> None:
    """Raise `NotReady` unless `versions` states the version everywhere and `git status --porcelain` is empty."""
    for place, other in stated.items():
        if other != version:
            raise NotReady(f"the tag says {version}, {place} says {other}")
    if changes.strip():
        raise NotReady(f"there are uncommitted changes: {changes.strip().splitlines()[0]}")


def build(project: Path, target: Path, *kinds: str) -> None:
    """Build wheel and sdist of a project, or what of these is named, into `target`."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target)]
    command += [option for kind in kinds for option in ("--target", kind)]
    subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL, timeout=300)


def main(argv: Sequence[str] | None = None) -> int:
    """Check and build; the exit status says whether there is a release."""
    parser = argparse.ArgumentParser(description="Build what a release consists of.")
    parser.add_argument("tag", nargs="?", default=os.environ.get("GITHUB_REF", ""))
    ref = parser.parse_args(argv).tag
    status = ("git", "-C", str(ROOT), "status", "--porcelain")
    try:
        changes = subprocess.run(status, check=True, capture_output=True, text=True, timeout=60)
        check(tag_version(ref), versions(ROOT), changes.stdout)
    except NotReady as error:
        print(f"no release: {error}")
        return 1
    target = ROOT / "dist"
    if target.exists() and any(target.iterdir()):
        print("no release: dist/ is not empty")
        return 1
    for project in (ROOT, ROOT / "a2a"):
        build(project, target)
    for path in sorted(target.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
