"""What the commands about a worker's work ask for and print."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from postroom.cli import workspaces
from postroom.cli.root import root
from postroom.cli.status_lines import _workers
from tests.cli.conftest import Run
from tests.client.standin import Standin, status, worker

if TYPE_CHECKING:
    from postroom.protocol.shapes import Status

APPLIED: dict[str, Any] = {
    "task": "a" * 32,
    "worker": "coder",
    "path": "/src/app",
    "mode": "worktree",
    "branch": "postroom/coder",
    "command": "git merge postroom/coder",
    "merged": "",
    "onto": "main",
    "back": "d" * 40,
    "notes": ["none of your hooks runs", "the commit is not signed"],
    "hinders": "",
    "tree": "",
    "left": [],
}


DIRECT = {"path": "/src/app", "mode": "direct", "branch": "", "notes": []}


def test_the_command_prints_a_diff_in_which_nothing_acts_on_the_terminal(
    postroom: Run, standin: Standin
):
    answer = {
        "worker": "coder",
        "workspace": DIRECT,
        "text": "diff --git a/x b/x\n+\x1b]0;evil\x07two\n-one\x1b[2J\n",
        "cut": True,
        "files": 1,
        "commits": 0,
        "tree": "",
        "left": ["deep/.git\x1b[31m"],
        "command": "",
    }
    standin.answer("POST /v1/workers/coder/diff", answer)
    said = postroom("diff", "@coder", "x")
    assert standin.requests[-1].body == {"paths": ["x"], "stat": False}
    assert said.out.splitlines()[:3] == ["diff --git a/x b/x", "+two", "-one"]
    assert "there is more" in said.out
    assert "\x1b" not in said.out + said.err
    assert "in /src/app itself" in said.err
    assert "not brought back: deep/.git" in said.err


def test_the_command_to_merge_goes_to_standard_output_alone(postroom: Run, standin: Standin):
    standin.answer(f"POST /v1/tasks/{'a' * 8}/apply", APPLIED)
    said = postroom("task", "apply", "a" * 8)
    assert said.out == "git merge postroom/coder\n"
    assert said.err.splitlines() == [
        "postroom/coder is up to date in /src/app, and would be merged into main, now at dddddddddddd",
        "none of your hooks runs",
        "the commit is not signed",
    ]
    standin.answer(f"POST /v1/tasks/{'b' * 8}/apply", APPLIED | {"merged": "b" * 40})
    said = postroom("task", "apply", "b" * 8, "--merge")
    assert said.out == (
        "merged postroom/coder into main of /src/app: bbbbbbbbbbbb; it was at dddddddddddd\n"
    )
    assert said.err == "to go back: postroom task apply @coder --undo\n"
    assert standin.requests[-1].body == {"merge": True, "undo": False}
    standin.answer(f"POST /v1/tasks/{'c' * 8}/apply", APPLIED | {"command": "", "branch": ""})
    assert "nothing to merge" in postroom("task", "apply", "c" * 8).err


def test_a_command_that_waits_says_which_step_goes_on(
    standin: Standin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    said: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(workspaces, "SLOW", 0.01)
    monkeypatch.setattr(workspaces.click, "echo", lambda text, **_: said.put(text))
    standin.answer("GET /v1/workers/bob", worker(workspace=DIRECT | {"doing": "packs 3 files"}))
    with (
        root.make_context("postroom", ["--state", str(tmp_path), "diff"]),
        workspaces.steps_told(lambda _: "bob"),
    ):
        assert said.get(timeout=20) == "packs 3 files ..."


def test_files_that_conflict_are_named_and_the_exit_status_says_so(postroom: Run, standin: Standin):
    workspace = {"path": "/src/app", "mode": "worktree", "branch": "postroom/coder", "onto": "main"}
    answer = {
        "worker": "coder",
        "workspace": workspace,
        "onto": "c" * 40,
        "commit": "d" * 40,
        "taken": 2,
        "conflicts": [],
        "task": "",
        "left": [],
    }
    standin.answer("POST /v1/workers/coder/sync", answer)
    assert postroom("task", "sync", "@coder", "--rebase").out == (
        "@coder has 2 commits more of main: cccccccccccc\n"
    )
    asked = standin.requests[-1].body
    assert asked == {"rebase": True, "resolve": False, "timeout": 300.0}
    standin.answer("POST /v1/workers/ann/sync", answer | {"conflicts": ["a\x1b[2J.txt"]})
    said = postroom("task", "sync", "@ann")
    assert said.status == 5
    assert "conflict: a.txt" in said.err
    asked = answer | {"conflicts": ["a.txt"], "task": "e" * 32}
    standin.answer("POST /v1/workers/eve/sync", asked)
    said = postroom("task", "sync", "@eve", "--let-it-resolve")
    assert (said.status, said.out) == (0, "@coder joins both: postroom task watch eeeeeeee\n")


def test_a_merge_of_an_agent_is_shown_and_counts_by_a_yes_alone(postroom: Run, standin: Standin):
    text = "diff --cc a.txt\n@@@ -1,1 -1,1 +1,1 @@@\n- theirs\n -mine\n++both\x1b[2J\n"
    merge = {"commit": "d" * 40, "onto": "c" * 40, "before": "b" * 40, "text": text, "cut": False}
    answer = {
        "worker": "coder",
        "workspace": {"path": "/src/app", "mode": "worktree", "branch": "postroom/coder"},
        "onto": "c" * 40,
        "commit": "d" * 40,
        "taken": 0,
        "conflicts": [],
        "task": "",
        "left": [],
        "merge": merge,
    }
    standin.answer("POST /v1/workers/coder/sync", answer)
    said = postroom("task", "sync", "@coder")
    assert (said.status, "++both\n" in said.out) == (5, True)
    assert "postroom task sync @coder --yes" in said.err
    assert "accept" not in (standin.requests[-1].body or {})
    said = postroom("task", "sync", "@coder", "--yes")
    assert standin.requests[-1].body == {
        "rebase": False,
        "resolve": False,
        "timeout": 300.0,
        "accept": "d" * 40,
    }
    assert (said.status, "\x1b" in said.out) == (0, False)
    assert "the merge counts: postroom task apply @coder" in said.err
    diff = {key: answer[key] for key in ("worker", "workspace", "left", "merge")}
    diff |= {"tree": "", "text": "", "cut": False, "files": 1, "commits": 2, "command": ""}
    standin.answer("POST /v1/workers/coder/diff", diff)
    said = postroom("diff", "@coder")
    assert "++both" in said.out
    assert "does not count yet: postroom task sync @coder" in said.err


def test_a_merge_is_undone_and_what_hinders_one_is_said(postroom: Run, standin: Standin):
    standin.answer("POST /v1/workers/coder/apply", APPLIED)
    said = postroom("task", "apply", "@coder", "--undo")
    assert said.out == "main of /src/app is at dddddddddddd again\n"
    assert standin.requests[-1].body == {"merge": False, "undo": True}
    standin.answer("POST /v1/workers/other/apply", APPLIED | {"hinders": "it is\x1b[31m dirty"})
    said = postroom("task", "apply", "@other")
    assert said.err.splitlines()[1:] == ["it cannot be merged now: it is dirty"]
    assert postroom("task", "apply", "@coder", "--undo", "--merge").status == 2


def test_a_folder_with_work_is_purged_only_when_a_person_says_so(postroom: Run, standin: Standin):
    workspace = {"path": "/src/app", "mode": "worktree", "branch": "postroom/bob", "notes": []}
    standin.answer("GET /v1/workers/bob", worker(workspace=workspace))
    said = postroom("remove", "bob", "--purge")
    assert (said.status, "its work stays on postroom/bob" in said.err) == (5, True)
    assert all(request.method != "DELETE" for request in standin.requests)


def test_status_shows_in_red_who_writes_a_folder_itself():
    found = cast("Status", status(worker(workspace=DIRECT)))
    lines = _workers(found, 0.0, None, wide=False)
    (line,) = [line for line in lines if "@bob" in line]
    assert "\x1b[31m\x1b[1mdirect /src/app" in line
