"""A coding agent is told once that the branch which its work began from has moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from postroom.sidecar.turns.home import StateFile
from postroom.sidecar.turns.prompts import Base, moved
from postroom_a2a.task_state import TaskState
from tests.sidecar.turns.rig import coding, prompts
from tests.sidecar.worker_rig import WorkerRig

pytestmark = pytest.mark.anyio

HAS = "that you have not"
ONE = "1" * 40


@pytest.mark.requirement("workspace-sync")
async def test_an_agent_is_told_once_for_each_move_of_its_base_also_over_restarts(home: WorkerRig):
    file = home.folder / "standing.json"

    def stands(branch: str, newest: str, behind: int) -> None:
        found = {"branch": branch, "newest": newest * 40, "behind": behind, "ahead": 0}
        file.write_text(json.dumps(found))

    async def turns(count: int = 1) -> None:
        for _ in range(count):
            await home.task(await home.request("RUN:[true]"), TaskState.COMPLETED)

    told: dict[str, Any] = {"changes": {"standing": str(file)}}
    async with coding(home, **told):
        await turns()  # nothing is known yet
        stands("main", "a", 0)
        await turns()
        stands("main", "b", 3)
        await turns(2)
    async with coding(home, **told):
        await turns()
        stands("main`\nrm -rf <b>\x1b[2J", "c", 1)
        await turns(2)
        stands("main", "c", 0)
        await turns()
    lines = [line for text in prompts(home) for line in text.splitlines() if HAS in line]
    assert lines == [moved("main", "b" * 40, 3), moved("", "c" * 40, 1)]
    assert lines[0] == (
        "The branch `main` has 3 commits that you have not."
        " Merge when it suits (`git merge person/main`), or ask."
    )
    assert [HAS in text for text in prompts(home)].index(True) == 2
    assert "rm -rf" not in "".join(prompts(home))


@pytest.mark.parametrize(
    "name",
    ["a b", "a\nb", "\x1b[2J", "`id`", "<b>", "-x", "$(id)", "r\u202eb", "x" * 101, "", None, 7],
)
def test_a_branch_whose_name_is_more_than_plain_letters_is_not_named(name: object):
    said = moved(name, ONE, 2)
    assert said == (
        "The branch that your work began from has 2 commits that you have not."
        f" Merge when it suits (`git merge {ONE}`), or ask."
    )


@pytest.mark.parametrize(
    "wrong", [{}, [], {"newest": "x", "behind": 1}, {"newest": ONE, "behind": True}, "{"]
)
async def test_a_file_that_says_nothing_usable_is_no_news(tmp_path: Path, wrong: Any):
    file = tmp_path / "standing.json"
    file.write_text(wrong if isinstance(wrong, str) else json.dumps(wrong))
    assert Base(file, StateFile(tmp_path / "told")).news() == ("", "")
    assert Base(None, StateFile(tmp_path / "told")).news() == ("", "")
