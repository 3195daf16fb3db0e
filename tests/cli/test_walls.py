"""How the command line shows how strong a worker's wall is, and how a person accepts a weaker one."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.cli import status_lines as status
from postroom.lines.workers import spawned
from tests.cli.conftest import Run
from tests.client.standin import Standin, worker

RED = "\x1b[31m"


def walled(provider: str, level: str) -> dict[str, object]:
    return worker(sandbox={"provider": provider, "level": level})


@pytest.mark.requirement("sandbox-partial-stated")
@pytest.mark.parametrize(
    "provider, level, red",
    [("bubblewrap", "enforced", False), ("landlock", "partial", True), ("none", "none", True)],
)
def test_a_wall_that_is_not_enforced_is_red(provider: str, level: str, red: bool):
    said = spawned(walled(provider, level))  # ty: ignore[invalid-argument-type]
    cell = status._wall(walled(provider, level), wide=True)  # ty: ignore[invalid-argument-type]

    assert (RED in said) is red
    assert (cell.text, cell.colour == "red") == (f"{level} ({provider})", red)


def test_spawn_says_which_isolation_is_accepted(postroom: Run, standin: Standin, tmp_path: Path):
    standin.answer("POST /v1/workers", walled("landlock", "partial"), 201)
    path = tmp_path / "a.toml"
    path.write_text('[worker]\nname = "a"\n[workstation]\ncommand = ["sh"]\n')

    ended = postroom("spawn", str(path), "--isolation", "partial", "--sandbox", "landlock")

    assert "sandbox landlock: partial" in ended.out
    body = standin.requests[-1].body
    assert (body["isolation"], body["sandbox"]) == ("partial", "landlock")


def test_spawn_knows_the_levels(postroom: Run, tmp_path: Path):
    path = tmp_path / "a.toml"
    path.write_text('[worker]\nname = "a"\n')

    ended = postroom("spawn", str(path), "--isolation", "strong")

    assert ended.status == 2
    assert "'enforced', 'partial', 'none'" in ended.err
