"""What `postroom status` shows first, and that it fits."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from postroom.view.needs import line_of
from postroom.view.room import Room
from postroom_a2a.times import format_time
from tests.cli.conftest import Run
from tests.cli.terminal import Terminal
from tests.cli.test_approvals import approval
from tests.client.standin import TASK, Standin, alert, status, task, worker

if TYPE_CHECKING:
    from postroom.protocol.shapes import Status

NASTY = "\x1b[31mred\x07 \u202ereversed\nbob 12:00 forged"
LONG = "it could not be read because " * 12


def answered(standin: Standin, *workers: dict[str, Any], **changes: Any) -> None:
    standin._answers.clear()
    standin.answer("GET /v1/status", status(*workers, **changes))


def at_work(**changes: Any) -> dict[str, Any]:
    return {"id": TASK, "state": "working", "text": "review /srv/www", "attempt": 1} | changes


@pytest.mark.requirement("cli-status-attention")
def test_status_lists_first_what_needs_attention(postroom: Run, standin: Standin):
    answered(
        standin,
        worker("idler"),
        worker("halted", state="stopped", desired="stopped"),
        worker("stuck", state="stalled"),
        worker("broken", state="failed", detail="exit code 1"),
        deadletters=2,
        inbox=3,
        alerts=[alert("help", nick="bob", count=2)],
        attention=[task(state="input-required", seq=9, detail=NASTY)],
    )
    lines = postroom("status").out.splitlines()
    assert lines[0] == "post room 0.1.0 at http://127.0.0.1:1, you are @alice"
    assert lines[8].endswith(" @bob help (2 times)")
    assert [*lines[1:8], *lines[9:11]] == [
        "needs you:",
        "  ab12cd34 @bob asks: red reversed bob 12:00 forged",
        "    postroom task answer ab12cd34 TEXT",
        "  @broken has failed: exit code 1",
        "    postroom logs broken; postroom restart broken",
        "  @stuck is stalled",
        "    postroom logs stuck; postroom restart stuck",
        "unread messages to you: 3 (postroom inbox)",
        "dead letters: 2 (postroom deadletters list)",
    ]
    assert [line.split()[0] for line in lines[12:]] == ["@broken", "@stuck", "@idler", "@halted"]
    assert lines[12].endswith("exit code 1")


@pytest.mark.requirement("approval-never-hangs")
def test_what_needs_a_person_is_said_as_the_screen_says_it_and_in_its_order(
    postroom: Run, standin: Standin
):
    workers = worker("anna", state="stalled"), worker("bert", state="failed", detail="exit code 1")
    question = {
        "kind": "question",
        "tool": "AskUserQuestion",
        "title": "Which branch?",
        "input": {},
        "asked_at": format_time(1.0),
    }
    approvals = [approval(**question), approval(id="2" * 32)]
    answered(standin, *workers, approvals=approvals)
    needs = Room(cast("Status", status(*workers, approvals=approvals))).needs

    lines = postroom("status").out.splitlines()

    said = [
        "asks: Which branch?",
        "asks to use Bash: make deploy",
        "has failed: exit code 1",
        "is stalled",
    ]
    assert [line_of(need).partition(" ")[2] for need in needs] == said
    told = [line.split("@", 1)[1].partition(" ")[2] for line in lines[2:10:2]]
    assert told == said


def test_a_worker_that_is_stopped_says_so_once_and_is_left_out_on_demand(
    postroom: Run, standin: Standin
):
    halted = worker("halted", state="stopped", desired="stopped", task=at_work(state="working"))
    told = "@halted is stopped; the answer waits for its start: postroom restart halted"
    over = worker("over", state="exited", desired="stopped")
    answered(standin, worker("idler"), halted | {"detail": told}, over)

    lines = postroom("status").out.splitlines()

    assert " ".join(lines[-2].split()).endswith(f"stopped ab12cd34 {told}")
    shown = postroom("ps", "--running").out
    assert ("@idler" in shown, "@halted" in shown, "@over" in shown) == (True, False, False)
    answered(standin, halted, over)
    assert "no worker runs (2 stopped: postroom status)" in postroom("ps", "--running").out


def test_a_question_is_no_alert_beside_what_needs_you(postroom: Run, standin: Standin):
    told = alert("asks about task ab12cd34: red", kind="input-required", nick="bob")
    answered(standin, worker(), alerts=[told, alert("full")])
    line = postroom("status").out.splitlines()[1]
    assert (line[:9], line[-5:]) == ("alert: 1 ", " full")


@pytest.mark.requirement("cli-status-attention")
def test_status_shows_what_each_worker_is_at_since_when_and_what_it_said_last(
    postroom: Run, standin: Standin
):
    began = format_time(time.time() - 130)
    answered(
        standin,
        worker(
            "bob",
            state="working",
            open_tasks=3,
            task=at_work(status_text="step 8 of 20", started_at=began, attempt=2),
        ),
        worker("carl", task=None),
        worker(
            "dora",
            open_tasks=1,
            task=at_work(state="input-required", status_text="which?", started_at=began),
        ),
        worker("emil", state="working", open_tasks=1, task=at_work()),
    )
    _, head, bob, carl, dora, emil = postroom("status").out.splitlines()
    assert head.split() == ["NICK", "STATE", "TASK", "TIME", "LAST"]
    assert bob.split("  ") == [
        "@bob",
        " working",
        "ab12cd34 +2",
        "2 min",
        "attempt 2: step 8 of 20",
    ]
    assert carl.split() == ["@carl", "idle", "-"]
    assert dora.split() == ["@dora", "asks", "ab12cd34", "2", "min", "which?"]
    assert emil.split() == ["@emil", "working", "ab12cd34", '"review', '/srv/www"']


@pytest.mark.requirement("failing-last-word")
def test_the_newest_error_of_an_agent_is_its_last_word(postroom: Run, standin: Standin):
    failing = "the model failed (rate_limit, 429); it tries again (1 of 10), at 12:00:00"
    task = at_work(status_text="step 8 of 20")
    answered(
        standin,
        worker("bob", state="working", task=task, trouble=failing),
        worker("carl", task=None, trouble=NASTY),
        worker("dora", state="working", task=at_work(), detail="Bash: make test"),
    )
    _, _, bob, carl, dora = postroom("status").out.splitlines()
    assert bob.endswith(failing)
    assert carl.endswith("red reversed bob 12:00 forged")
    assert dora.endswith("Bash: make test")


def test_the_plumbing_is_shown_when_it_is_asked_for(postroom: Run, standin: Standin):
    ago = (None, "unknown"), ("9999-12-31T23:59:59Z", "0 s ago"), ("1970-01-01T00:00:00Z", " d ago")
    answered(standin, *(worker(f"w{n}", last_seen=at, unread=5) for n, (at, _) in enumerate(ago)))
    assert "bubblewrap" not in postroom("status").out
    first, head, *rows = postroom("status", "--wide").out.splitlines()
    assert first.endswith("(pid 1), org default, you are @alice")
    assert head.split()[5:] == ["SANDBOX", "PROJECT", "OPEN", "UNREAD", "SEEN"]
    for row, (_, shown) in zip(rows, ago, strict=True):
        assert row.endswith(shown)
        assert "enforced (bubblewrap)  #main    0     5  " in row


@pytest.mark.requirement("cli-status-attention")
def test_a_wall_that_is_weaker_than_enforced_is_always_shown_in_red(
    standin: Standin, tmp_path: Path
):
    open_ = worker("open", sandbox={"provider": "none", "level": "none"})
    answered(standin, worker("walled"), open_)
    with Terminal("status", "--state", str(tmp_path)) as terminal:
        assert terminal.ended() == 0
    assert "SANDBOX" in terminal.plain
    assert "\x1b[31m\x1b[1mnone" in terminal.text


@pytest.mark.requirement("cli-status-attention")
@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("options", [[], ["--wide"]])
def test_no_line_of_status_is_wider_than_the_terminal(
    standin: Standin, tmp_path: Path, columns: int, options: list[str]
):
    working = at_work(status_text=LONG, started_at=format_time(1.0), attempt=3)
    wall = {"provider": "bubblewrap", "level": "partial"}
    workers = [
        worker("日本" + "n" * 60, state="working", task=working, open_tasks=12, sandbox=wall),
        *(worker(f"w{n}-{'x' * 50}", state="failed", detail=LONG) for n in range(20)),
    ]
    asks = task(state="input-required", seq=9, detail=LONG)
    alerts = [alert(LONG, nick="bob")] * 3
    answered(
        standin,
        *workers,
        attention=[asks],
        alerts=alerts,
        bus=LONG,
        audit=LONG,
        inbox=7,
        deadletters=99,
    )
    with Terminal("status", *options, "--state", str(tmp_path), columns=columns) as terminal:
        assert terminal.ended() == 0
    lines = terminal.plain.splitlines()
    assert max(map(columns_of, lines)) <= columns
    assert sum("postroom task answer" in line for line in lines) == 1
    assert lines[-1].startswith("@")


def columns_of(line: str) -> int:
    from postroom.lines.text import columns

    return columns(line)


def test_status_is_whole_in_a_pipe(postroom: Run, standin: Standin):
    answered(standin, worker("bob", state="working", task=at_work(status_text=LONG)))
    assert LONG.strip() in postroom("status").out


def test_status_in_json_is_what_the_server_said(postroom: Run, standin: Standin):
    assert json.loads(postroom("status", "--json").out) == status()
