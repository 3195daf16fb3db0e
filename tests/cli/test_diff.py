"""What the commands about a worker's work ask for and print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from postroom.lines.status import _workers
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
    "left": [],
}


def test_the_command_prints_a_diff_in_which_nothing_acts_on_the_terminal(
    postroom: Run, standin: Standin
):
    answer = {
        "worker": "coder",
        "workspace": {"path": "/src/app", "mode": "direct", "branch": "", "notes": []},
        "text": "diff --git a/x b/x\n+\x1b]0;evil\x07two\n-one\x1b[2J\n",
        "cut": True,
        "files": 1,
        "commits": 0,
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
    assert "postroom/coder is up to date in /src/app" in said.err
    standin.answer(f"POST /v1/tasks/{'b' * 8}/apply", APPLIED | {"merged": "b" * 40})
    assert postroom("task", "apply", "b" * 8, "--merge").out == (
        "merged postroom/coder in /src/app: bbbbbbbbbbbb\n"
    )
    assert standin.requests[-1].body == {"merge": True}
    standin.answer(f"POST /v1/tasks/{'c' * 8}/apply", APPLIED | {"command": "", "branch": ""})
    assert "nothing to merge" in postroom("task", "apply", "c" * 8).err


def test_a_folder_with_work_is_purged_only_when_a_person_says_so(postroom: Run, standin: Standin):
    workspace = {"path": "/src/app", "mode": "worktree", "branch": "postroom/bob", "notes": []}
    standin.answer("GET /v1/workers/bob", worker(workspace=workspace))
    said = postroom("remove", "bob", "--purge")
    assert (said.status, "its work stays on postroom/bob" in said.err) == (5, True)
    assert all(request.method != "DELETE" for request in standin.requests)


def test_status_shows_in_red_who_writes_a_folder_itself():
    workspace = {"path": "/src/app", "mode": "direct", "branch": "", "notes": []}
    found = cast("Status", status(worker(workspace=workspace)))
    lines = _workers(found, 0.0, None, wide=False)
    (line,) = [line for line in lines if "@bob" in line]
    assert "\x1b[31m\x1b[1mdirect /src/app" in line
