"""What removed workers have left is shown, and deleted after one question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import PostRoom
from tests.workspaces.bench import git, repository
from tests.workspaces.test_room import spawn, task


@pytest.mark.requirement("workspace-branch")
def test_merged_branches_go_and_what_nothing_else_has_is_named_and_stays(
    room: PostRoom, tmp_path: Path
):
    app = repository(tmp_path / "app")
    for name in ("merged", "alone", "there"):
        spawn(room, name, "-w", str(app))
        task(room, name, f"echo x > {name}; git add .; git commit -qm {name}")
    room.run("task", "apply", "@merged", "--merge")
    room.run("diff", "alone", "--stat")
    room.run("remove", "merged", "--purge", "--yes")
    room.run("remove", "alone")
    git(app, "branch", "postroom/theirs")  # of a worker of another post room
    git(app, "switch", "-q", "postroom/theirs")
    git(app, "commit", "-q", "--allow-empty", "-m", "theirs")
    git(app, "switch", "-q", "main")
    git(app, "update-ref", f"refs/postroom/{'e' * 32}/work", "postroom/theirs")
    commit = git(app, "rev-parse", "postroom/alone")
    shown = room.run("tidy", str(app), "--dry-run")
    assert "postroom/merged   merged into main" in shown
    assert "postroom/alone    1 commit that nothing else has" in shown
    assert f"branch postroom/alone {commit[:12]}" in room.stderr
    assert "postroom/there" not in shown
    assert "postroom/theirs" not in shown
    room.run("tidy", str(app), status=5)
    found = json.loads(room.run("tidy", str(app), "--yes", "--json"))
    assert [branch["name"] for branch in found["branches"]] == ["postroom/merged"]
    assert "alone" in [left["nick"] for left in found["leftovers"]]
    left = ["postroom/alone", "postroom/theirs", "postroom/there"]
    assert (
        git(app, "for-each-ref", "--format=%(refname:short)", "refs/heads/postroom").split() == left
    )
    assert "deleted 1 branch, " in room.run("tidy", str(app), "--unmerged", "--yes")
    assert git(app, "branch", "--list", "postroom/alone") == ""
    room.run("tidy", str(tmp_path), status=2)
    assert "is in no repository" in room.stderr


@pytest.mark.requirement("workspace-branch")
def test_a_folder_with_what_did_not_come_back_stays_until_it_is_named(
    room: PostRoom, tmp_path: Path
):
    app = repository(tmp_path / "app")
    spawn(room, "keeper", "-w", str(app))
    task(room, "keeper", "git init -q inner; echo x > inner/file")
    room.run("remove", "keeper", "--purge", "--yes", status=5)
    assert "not brought back: inner/" in room.run("tidy", str(app))
    found = json.loads(room.run("tidy", str(app), "--dry-run", "--json"))["leftovers"]
    (left,) = (each for each in found if each["nick"] == "keeper")
    assert Path(left["folder"], "workspace", "inner", "file").is_file()
    room.run("tidy", str(app), "--unmerged", "--yes")
    assert not Path(left["folder"]).exists()
    assert git(app, "for-each-ref", "refs/postroom") == ""
