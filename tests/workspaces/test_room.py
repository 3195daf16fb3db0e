"""A worker on a person's repository, by the commands of the person."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import PostRoom, until
from tests.workspaces.bench import git, repository

SHELL = """
[worker]
name = "{name}"
[workstation]
command = ["sh", "-e"]
adapter = "text"
"""
"""Runs each request as a shell script in its workspace."""


def spawn(room: PostRoom, name: str, *words: str) -> None:
    room.run("spawn", room.template(SHELL.format(name=name), name), *words)


def task(room: PostRoom, name: str, script: str) -> str:
    said = room.call("delegate", name, script, "--wait", "--timeout", "35", "--json").stdout
    last = json.loads(said.splitlines()[-1])
    assert last["state"] == "completed", last["status_text"]
    return str(last["id"])


@pytest.mark.requirement("workspace-branch")
def test_a_task_comes_back_as_a_branch_that_a_person_looks_at_and_merges(
    room: PostRoom, tmp_path: Path
):
    app = repository(tmp_path / "app")
    (app / "draft").write_text("not committed")
    spawn(room, "coder", "--workspace", str(app))
    assert "on branch postroom/coder of" in room.stderr
    assert "1 uncommitted change is not taken: commit first, or --as copy" in room.stderr
    done = task(room, "coder", "echo two >> a.txt; git commit -qam second; echo new > b.txt")
    until(lambda: git(app, "branch", "--list", "postroom/coder"))
    diff = room.run("diff", "@coder")
    assert "+two" in diff
    assert "b.txt" in diff
    assert "2 files changed, 2 commits" in room.stderr
    assert "b.txt" not in room.run("diff", "coder", "a.txt")
    assert "2 files changed" in room.run("diff", "coder", "--stat")
    assert room.run("task", "apply", done) == "git merge postroom/coder\n"
    assert git(app, "log", "--format=%s") == "first"
    room.run("task", "apply", done, "--merge")
    assert (app / "a.txt").read_text() == "one\ntwo\n"
    assert (app / "b.txt").read_text() == "new\n"
    room.run("task", "apply", "@coder", "--undo")
    assert (app / "a.txt").read_text() == "one\n"
    assert git(app, "status", "--porcelain") == "?? draft"
    room.run("task", "apply", "coder", "--undo", status=2)  # no id of a task
    room.run("task", "apply", "@coder", "--undo", status=2)
    room.run("task", "apply", "@coder", "--merge")
    assert (app / "b.txt").read_text() == "new\n"
    shown = room.worker("coder")["workspace"]
    assert (shown["mode"], shown["branch"]) == ("worktree", "postroom/coder")


@pytest.mark.requirement("workspace-sync")
def test_status_and_diff_say_how_far_a_worker_is_behind_and_it_sees_the_commits_itself(
    room: PostRoom, tmp_path: Path
):
    app = repository(tmp_path / "app")
    git(app, "branch", "rel/1")
    git(app, "branch", "private")
    spawn(room, "later", "--workspace", str(app), "--branches", "rel/*", "--branches", "none")
    assert "no branch is called none yet" in room.stderr
    task(room, "later", "git commit -q --allow-empty -m mine; git rev-parse -q person/rel/1")
    (app / "c.txt").write_text("theirs\n")
    git(app, "add", ".")
    git(app, "commit", "-qm", "theirs")
    until(lambda: room.worker("later")["workspace"]["behind"] == 1)
    until(lambda: "postroom/later (1 behind main, 1 ahead)" in room.run("status", "--wide"))
    room.run("diff", "later")
    assert "1 behind main, 1 ahead" in room.stderr
    task(room, "later", "git merge -q person/main && cat c.txt")
    until(lambda: room.worker("later")["workspace"]["behind"] == 0)
    assert "c.txt" not in room.run("diff", "later", "--stat")
    room.run("restart", "later")
    git(app, "branch", "rel/2")
    see = "while ! git rev-parse -q --verify person/rel/2; do sleep 0.1; done; git branch -r"
    task(room, "later", f"{see}; ! git rev-parse -q --verify person/private")


@pytest.mark.requirement("workspace-sync")
def test_a_worker_gets_a_persons_newer_commits_and_a_conflict_becomes_its_task(
    room: PostRoom, tmp_path: Path
):
    app = repository(tmp_path / "app")
    spawn(room, "syncer", "--workspace", str(app))
    task(room, "syncer", "echo mine > b.txt; git add .; git commit -qm mine; echo draft > d.txt")
    (app / "c.txt").write_text("theirs\n")
    git(app, "add", ".")
    git(app, "commit", "-qm", "theirs")
    assert "has 1 commit more of main" in room.run("task", "sync", "@syncer")
    assert "c.txt" not in room.run("diff", "@syncer")
    shown = room.worker("syncer")["workspace"]
    assert (shown["onto"], shown["behind"], shown["doing"]) == ("main", 0, "")
    task(
        room,
        "syncer",
        "cat c.txt d.txt && test -z \"$(git status --porcelain d.txt | grep -v '??')\"",
    )
    (app / "b.txt").write_text("theirs\n")
    git(app, "add", ".")
    git(app, "commit", "-qm", "theirs, too")
    room.run("task", "sync", "syncer", status=5)
    assert "conflict: b.txt" in room.stderr
    said = json.loads(room.run("task", "sync", "syncer", "--let-it-resolve", "--json"))
    assert said["conflicts"] == ["b.txt"]
    until(lambda: json.loads(room.run("task", "show", said["task"], "--json"))["final"])
    assert said["onto"] in room.run("task", "show", said["task"])
    assert room.worker("syncer")["workspace"]["behind"] == 1


@pytest.mark.requirement("workspace-merge-undone")
def test_a_merge_that_an_agent_made_is_applied_once_its_person_says_that_it_counts(
    room: PostRoom, tmp_path: Path
):
    app = repository(tmp_path / "app")
    spawn(room, "joiner", "--workspace", str(app))
    task(room, "joiner", "echo mine > a.txt; git commit -qam mine")
    (app / "a.txt").write_text("theirs\n")
    git(app, "commit", "-qam", "theirs")
    said = json.loads(room.run("task", "sync", "joiner", "--let-it-resolve", "--json"))
    assert said["conflicts"] == ["a.txt"]
    join = "git merge -q person/main || echo both > a.txt; git commit -qam joined"
    task(room, "joiner", join)
    assert "++both\n" in room.run("task", "sync", "@joiner", status=5)
    room.run("task", "apply", "@joiner", "--merge", status=5)
    assert "does not count yet" in room.stderr
    room.run("task", "sync", "@joiner", "--yes")
    room.run("task", "apply", "@joiner", "--merge")
    assert (app / "a.txt").read_text() == "both\n"


@pytest.mark.requirement("workspace-branch")
def test_what_was_not_committed_is_on_the_branch_when_the_worker_is_removed_with_its_files(
    room: PostRoom, tmp_path: Path
):
    app = repository(tmp_path / "app")
    spawn(room, "leaver", "-w", str(app))
    task(room, "leaver", "echo draft > draft.txt")
    room.run("remove", "leaver", "--purge", status=5)
    room.run("remove", "leaver", "--purge", "--yes")
    assert git(app, "show", "postroom/leaver:draft.txt") == "draft"
    assert git(app, "for-each-ref", "refs/postroom") == ""


def test_a_folder_that_has_gone_is_an_alert_and_an_error_that_says_so(
    room: PostRoom, tmp_path: Path
):
    app = repository(tmp_path / "app")
    spawn(room, "orphan", "-w", str(app))
    app.rename(tmp_path / "elsewhere")
    room.run("diff", "orphan", status=4)
    room.run("stop", "orphan")
    assert "is gone, or no repository any more" in room.run("alerts")
    room.run("restart", "orphan", status=4)
    (tmp_path / "elsewhere").rename(app)
    room.run("restart", "orphan")
    room.run("diff", "orphan")


@pytest.mark.requirement("sandbox-kernel-files-closed")
def test_files_that_lend_an_account_are_an_alert_at_the_end_of_a_task(
    room: PostRoom, tmp_path: Path
):
    (app := tmp_path / "plain").mkdir()
    (app / "file").touch()
    spawn(room, "lender", "-w", str(app), "--sandbox", "none")
    task(room, "lender", "mkdir -p deep; cp /usr/bin/id deep/id; chmod 4755 deep/id")
    until(lambda: "workspace-set-id" in room.run("alerts", "--json"))
    assert "set-group-ID bit in its workspace: deep/id" in room.run("alerts")
    task(room, "lender", "rm deep/id")
    until(lambda: "workspace-set-id" not in room.run("alerts", "--json"))
    room.run("remove", "lender", "--purge", "--yes")
