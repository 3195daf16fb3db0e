"""What no file of the repository may contain: where packages came from, and where it was written.

The patterns are put together from parts, so that this file does not contain what it looks for.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

REGISTRIES = re.compile(
    "|".join(
        [
            r"https?://[^ ]*" + "py" + "pi",
            "files" + r"\." + "pythonhosted",
            "registry" + r"\." + "npmjs",
            "--(extra-)?" + "index-url",
        ]
    ),
    re.IGNORECASE,
)
# Only where a path begins: `docs/work/` names no machine.
MACHINE_PATHS = re.compile(r"(?<![\w.~$})/-])/" + "(work|root)" + "/")


def repository_files() -> Iterator[Path]:
    """Every file that is committed or would be: tracked, and untracked but not ignored."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    ).stdout
    paths = (ROOT / name for name in listing.split("\0") if name)
    return (path for path in paths if path.is_file())


def lines_with(pattern: re.Pattern[str], paths: Iterator[Path]) -> list[str]:
    """`file:line: text` for every line that matches."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.requirement("install-by-hash")
def test_no_file_names_a_package_registry() -> None:
    assert lines_with(REGISTRIES, repository_files()) == []


@pytest.mark.requirement("install-by-hash")
def test_no_file_names_a_folder_of_a_machine() -> None:
    assert lines_with(MACHINE_PATHS, repository_files()) == []


def test_the_files_searched_include_the_sources_and_the_pins() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in repository_files()}

    assert {"pyproject.toml", "requirements/dev.txt", "src/postroom/errors.py"} <= names


@pytest.mark.parametrize(
    "line",
    [
        "https://" + "py" + "pi.org/simple",
        "https://mirror.example/" + "py" + "pi/simple",
        "pip install --" + "index-url x",
        "pip install --extra-" + "index-url x",
        "https://registry" + ".npmjs.org/",
    ],
)
def test_a_registry_address_is_recognised(line: str) -> None:
    assert REGISTRIES.search(line)


def test_the_option_that_leaves_the_address_out_is_allowed() -> None:
    assert not REGISTRIES.search("uv pip compile --no-emit-index-url")


@pytest.mark.parametrize("line", ["cd /" + "work/main", '"/' + 'root/.cache"', "x=/" + "root/y"])
def test_a_folder_of_a_machine_is_recognised(line: str) -> None:
    assert MACHINE_PATHS.search(line)


@pytest.mark.parametrize("line", ["docs/work/plan.md", "~/work/x", "https://example.org/work/x"])
def test_a_folder_below_another_is_allowed(line: str) -> None:
    assert not MACHINE_PATHS.search(line)
