"""The commands that show and decide, against a post room that answers as it is told."""

from __future__ import annotations

import copy
import json
import os
import random
import string
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from postroom.client import belonging
from postroom.errors import Conflict, Forbidden, InvalidInput, PinRequired, PinWrong, problem
from postroom.lines.approvals import details
from postroom.lines.inputs import draft_of, exact_rows, input_rows, visible
from postroom_a2a.times import format_time
from tests.cli.conftest import Run
from tests.cli.terminal import Terminal
from tests.client.standin import Standin, status, worker

ID = "7b1c5e2f90a4d3b86c0e1f2a3b4c5d6e"
UID = "9f1c2b3a4d5e6f708192a3b4c5d6e7f8"
MARIA = {"uid": "0" * 32, "nick": "maria", "kind": "human"}


def approval(**more: Any) -> Any:
    now = time.time()
    made: dict[str, Any] = {
        "id": ID,
        "seq": 7,
        "state": "pending",
        "worker": {"uid": UID, "nick": "coder", "kind": "worker"},
        "task": None,
        "message": None,
        "kind": "tool",
        "tool": "Bash",
        "title": "deploy",
        "input": {"command": "make deploy"},
        "reason": "",
        "default": "deny",
        "asked_at": format_time(now - 5),
        "expires_at": None,
        "answer": None,
        "late": [],
    }
    return made | more


def test_status_says_of_a_worker_that_waits_for_an_approval_that_it_asks(
    postroom: Run, standin: Standin
):
    busy = [worker("coder", uid=UID, state="working"), worker("other", state="working")]
    now(standin, "GET /v1/status", status(*busy, approvals=[approval()]))
    lines = postroom("status").out.splitlines()
    words = {line.split()[0]: line.split()[1] for line in lines if line.startswith("@")}
    assert words == {"@coder": "asks", "@other": "working"}


def settled(state: str, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "id": 9,
        "at": format_time(time.time()),
        "decision": state,
        "by": MARIA,
    }
    answer |= {"channel": "attach", "reason": "go on", "input": None} | more
    return approval(state=state, answer=answer)


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if nobody above these tests were an agent."""
    for name in belonging.MARKS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(belonging.refuse_agents, "__defaults__", (os.environ, tmp_path / "proc"))


CONTROL = f"/v1/workers/{UID}/control"


def now(standin: Standin, call: str, body: Any, status: int = 200) -> None:
    """Answer this from now on."""
    method, path = call.split(" ")
    standin._answers[method, path].clear()
    standin.answer(call, body, status)


def answers(standin: Standin, shown: dict[str, Any], done: Any, status: int = 200) -> None:
    now(standin, f"GET /v1/approvals/{ID}", shown)
    now(standin, "GET /v1/approvals/7b1c", shown)
    now(standin, f"POST {CONTROL}", done, status)


def sent(standin: Standin) -> list[dict[str, Any]]:
    return [request.body for request in standin.calls(f"POST {CONTROL}")]


def said(done: dict[str, Any]) -> dict[str, Any]:
    return {"approval": done, "interrupt": None}


def test_what_is_to_be_done_is_shown_before_it_is_allowed(standin: Standin, postroom: Run):
    answers(standin, approval(), said(settled("allowed")))
    done = postroom("approve", "7b1c", "--reason", "go on")
    assert done.status == 0, done.err
    assert done.out.splitlines() == [
        "7b1c5e2f @coder asks to use Bash",
        "  $ make deploy",
        "  deploy",
        "allowed 7b1c5e2f @coder",
    ]
    assert sent(standin) == [
        {
            "type": "control_response",
            "id": ID,
            "decision": "allowed",
            "channel": "cli",
            "reason": "go on",
        }
    ]


def test_who_is_second_is_told_who_was_first(standin: Standin, postroom: Run):
    first = Conflict(f"the approval {ID} is settled: denied by @maria over attach at 12:00")
    answers(standin, approval(), problem(first), 409)
    done = postroom("deny", "7b1c")
    assert (done.status, "denied by @maria over attach" in done.err) == (5, True)

    now(standin, "GET /v1/approvals/7b1c", settled("denied"))
    again = postroom("approve", "7b1c", "--edit")
    assert (again.status, len(sent(standin))) == (5, 1)
    assert "is settled: denied by @maria" in again.err


def test_an_unknown_id_is_not_found_and_then_nothing_is_decided(standin: Standin, postroom: Run):
    answers(standin, approval(), said(settled("allowed")))
    assert postroom("approve", "7b1c", "ffff").status == 4
    assert postroom("approve", "../x").status == 2
    assert sent(standin) == []


@pytest.mark.parametrize("given", ["[1]", "{", "7"])
def test_an_input_that_is_no_object_is_refused_and_nothing_is_decided(
    standin: Standin,
    postroom: Run,
    given: str,
):
    answers(standin, approval(), said(settled("edited")))
    assert postroom("approve", "7b1c", "--input", given).status == 2
    assert sent(standin) == []


@pytest.mark.parametrize(
    "changed, status",
    [("make test\n", 0), (None, 0)],
    ids=["edited", "unchanged"],
)
def test_the_editor_changes_the_input(
    standin: Standin,
    postroom: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    changed: str | None,
    status: int,
):
    script = tmp_path / "editor.py"
    write = f"open(sys.argv[1], 'w').write({changed!r})" if changed is not None else "pass"
    script.write_text(f"import sys\n{write}\n")
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")
    monkeypatch.delenv("VISUAL", raising=False)
    answers(standin, approval(), said(settled("edited")))

    done = postroom("approve", "7b1c", "--edit")

    assert done.status == status, done.err
    posted = [(each["decision"], each.get("input")) for each in sent(standin)]
    if status:
        assert posted == []
    elif changed is None:
        assert posted == [("allowed", None)]
    else:
        assert posted == [("edited", {"command": "make test"})]


@pytest.mark.requirement("approval-edit-plain")
@pytest.mark.parametrize(
    "given, key, text, suffix",
    [
        ({"command": "make\n", "description": "x"}, "command", "make\n", ".sh"),
        ({"cmd": 'printf "a\\n"'}, "cmd", 'printf "a\\n"', ".sh"),
        ({"file_path": "a.py", "old_string": "x", "new_string": ""}, "new_string", "", ".py"),
        ({"path": "a/b", "content": "x\n\ty"}, "content", "x\n\ty", ".txt"),
    ],
)
def test_what_is_edited_is_the_command_or_the_files_new_text(
    given: dict[str, Any], key: str, text: str, suffix: str
):
    draft = draft_of(given)
    assert (draft.key, draft.text, draft.suffix) == (key, text, suffix)
    assert draft.into(given, "other") == {**given, key: "other"}


@pytest.mark.requirement("approval-edit-plain")
@pytest.mark.parametrize(
    "given",
    [
        {"command": "make \u202eprod"},
        {"command": "make\r\nrm"},
        {"command": "a\u200bb"},
        {"command": ["make", "prod"]},
        {"file_path": "a", "edits": [{"old": "a", "new": "b"}]},
        {"content": "no file"},
        {"query": "x"},
    ],
)
def test_what_has_hidden_characters_or_no_one_text_is_edited_as_json_with_escapes(
    given: dict[str, Any],
):
    draft = draft_of(given)
    assert (draft.key, draft.suffix, draft.text.isascii()) == ("", ".json", True)
    assert draft.into(given, draft.text) == given
    with pytest.raises(InvalidInput):
        draft.into(given, "[1]")


@pytest.mark.requirement("approval-edit-plain")
@pytest.mark.parametrize("words", [("--edit",), ("--input", '{"command": "ls"}')])
def test_where_the_agent_takes_no_edited_input_it_is_refused_in_one_line(
    standin: Standin, postroom: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
):
    monkeypatch.setenv("EDITOR", "false")  # no editor is opened
    answers(standin, approval(editable=False), said(settled("edited")))
    done = postroom("approve", "7b1c", *words)
    assert (done.status, sent(standin)) == (2, [])
    assert "@coder takes no edited input" in done.err
    assert "editor" not in done.err


def test_without_a_terminal_the_pin_comes_from_a_file(
    standin: Standin,
    postroom: Run,
    tmp_path: Path,
):
    answers(standin, approval(), problem(PinRequired("your PIN is needed for this")), 403)
    bare = postroom("approve", "7b1c")
    assert (bare.status, "--pin-file" in bare.err) == (6, True)
    file = tmp_path / "pin"
    file.write_text("4711\n")
    now(standin, f"POST {CONTROL}", said(settled("allowed")))
    assert postroom("approve", "7b1c", "--pin-file", str(file)).status == 0
    assert sent(standin)[-1]["pin"] == "4711"


def test_at_a_terminal_the_pin_is_asked_for_and_never_shown(standin: Standin, tmp_path: Path):
    answers(standin, approval(), problem(PinRequired("your PIN is needed for this")), 403)
    with Terminal("--state", str(tmp_path), "approve", "7b1c") as terminal:
        terminal.read_until("PIN: ")
        now(standin, f"POST {CONTROL}", problem(PinWrong("that is not your PIN")), 403)
        terminal.type("0815\n")
        terminal.read_until("that is not your PIN")
        terminal.read_until("PIN: ", 2)
        now(standin, f"POST {CONTROL}", said(settled("allowed")))
        terminal.type("4711\n")
        terminal.read_until("allowed 7b1c5e2f @coder")
        shown = terminal.plain
    assert "0815" not in shown
    assert "4711" not in shown
    assert [each.get("pin") for each in sent(standin)] == [None, "0815", "4711"]


def test_the_list_and_the_history(standin: Standin, postroom: Run):
    late = copy.deepcopy(settled("allowed")["answer"]) | {"channel": "cli", "reason": ""}
    done = settled("denied") | {"late": [late]}
    now(standin, "GET /v1/approvals", {"approvals": [approval()], "next": None})
    pending = postroom("approvals")
    now(standin, "GET /v1/approvals", {"approvals": [approval(), done], "next": None})
    history = postroom("approvals", "--history", "--worker", "@coder")
    as_json = json.loads(postroom("approvals", "--history", "--json").out)

    assert [" ".join(line.split()) for line in pending.out.splitlines()] == [
        "ID WORKER ASKED TOOL WHAT EXPIRES",
        "7b1c5e2f @coder 5 s ago Bash make deploy",
    ]
    lines = [" ".join(line.split()) for line in history.out.splitlines()]
    assert lines[1] == "7b1c5e2f @coder pending Bash: make deploy"
    assert lines[2].endswith("@coder denied Bash: make deploy")
    assert lines[3].startswith("by @maria over attach, ")
    assert lines[4:6] == ["why: go on", "allowed too late"]
    assert lines[6].startswith("by @maria over cli, ")
    assert [each["state"] for each in as_json["approvals"]] == ["pending", "denied"]


def test_the_history_has_room_for_what_was_asked_in_80_columns(standin: Standin, tmp_path: Path):
    command = "npm test --workspace web 2>&1"
    asked = settled("denied") | {"input": {"command": command}}
    asked["answer"] = asked["answer"] | {
        "at": "2026-01-01T12:00:00.000Z",
        "reason": "not on Friday",
    }
    now(standin, "GET /v1/approvals", {"approvals": [asked], "next": None})
    with Terminal("--state", str(tmp_path), "approvals", "--history") as terminal:
        assert terminal.ended() == 0
        assert f"Bash: {command}" in terminal.plain
        assert "by @maria over attach, " in terminal.plain
        assert "why: not on Friday" in terminal.plain
        assert max(map(len, terminal.plain.splitlines())) <= 80


@pytest.mark.requirement("approval-never-hangs")
def test_status_says_first_what_waits_for_an_approval(standin: Standin, postroom: Run):
    alert: dict[str, Any] = {
        "id": 3,
        "at": format_time(time.time()),
        "first_at": format_time(time.time()),
    }
    alert |= {"count": 1, "nick": "coder", "who": None, "kind": "approval", "text": "asks"}
    now(
        standin,
        "GET /v1/status",
        status() | {"approvals": [approval()], "alerts": [alert | {"ended": "", "ended_at": None}]},
    )
    lines = postroom("status").out.splitlines()
    assert lines[1:4] == [
        "needs you:",
        "  7b1c5e2f @coder asks to use Bash: make deploy",
        "    postroom approve 7b1c5e2f; postroom deny 7b1c5e2f",
    ]
    assert not any(line.startswith("alert") for line in lines)


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "given, lines",
    [
        ({"command": "a\nb"}, ["  $ a", "    b"]),
        ({"command": ["rm", "-rf", "a b"]}, ["  $ rm -rf 'a b'"]),
        ({"command": "x", "timeout": 5}, ["  $ x", "  timeout: 5"]),
        (
            {"file_path": "a.py", "old_string": "one\ntwo", "new_string": "one\n2"},
            ["  file: a.py", "   one", "  -two", "  +2"],
        ),
        (
            {
                "file_path": "a.py",
                "edits": [{"old_string": "a", "new_string": "b", "replace_all": True}],
            },
            ["  file: a.py", "  -a", "  +b", "  replace_all: true"],
        ),
        (
            {"file_path": "a.py", "content": "x\ny"},
            ["  file: a.py", "  +x", "  +y"],
        ),
        ({"url": "https://x"}, ["  url: https://x"]),
        ({"command": "ls", "cmd": "rm"}, ["  $ ls", "  cmd: rm"]),
        (
            {"path": "a", "new_string": "n", "content": "c", "file_path": "b", "x": ""},
            ["  file: b", "  +n", "  path: a", "  content: c", '  x: ""'],
        ),
        (
            {"path": "a", "edits": [{"old": "o", "new": ""}, {"path": "b", "mode": 7}, 5]},
            ["  file: a", "  -o", "  path: b", "  mode: 7", "  5"],
        ),
        ({"path": "a", "old": "x", "new": "x\n"}, ["  file: a", "   x", "  +"]),
        ({}, ["  {}"]),
    ],
)
def test_an_input_is_shown_whole(given: dict[str, Any], lines: list[str]):
    assert [row.text for row in exact_rows(given)] == lines


def test_no_text_of_an_input_is_left_out_however_its_fields_are_named():
    rng = random.Random(14)
    names = ["command", "cmd", "file_path", "path", "old", "new_string", "content", "diff", "edits"]
    for _ in range(300):
        texts: list[str] = []

        def word(texts: list[str] = texts) -> str:
            texts.append("".join(rng.choices(string.ascii_lowercase, k=12)))
            return texts[-1]

        def fields(depth: int, word: Callable[[], str] = word) -> dict[str, Any]:
            return {
                name: [fields(depth - 1), word()] if depth and name == "edits" else word()
                for name in rng.sample(names, rng.randint(1, len(names)))
            }

        given = fields(2)
        shown = "\n".join(row.text for row in input_rows(given))
        assert [text for text in texts if text not in shown] == [], given


@pytest.mark.requirement("approval-never-hangs")
@pytest.mark.parametrize("hidden", ["\x1b[2K", "\u202e", "\u200b", "\r", "\x00", "\u2028"])
def test_no_character_that_hides_or_moves_text_reaches_a_person(hidden: str):
    text = f"echo {hidden} rm -rf /"
    asked = approval(
        title=text, reason=text, tool=text, input={"command": text, "file_path": text, "x": [text]}
    )
    lines = list(map(click.unstyle, details(asked, 0.0, None)))
    assert all(hidden not in line for line in lines)
    # That something is hidden in a command is said.
    assert f"  $ {visible(text)}" in lines
    assert visible(hidden)[0] == "\\"
    assert any("do not show" in line for line in lines)


# ── a courtesy ───────────────────────────────────────────────────────────────────────────────────────


def proc(folder: Path, *chain: tuple[str, tuple[str, ...]]) -> Path:
    """A /proc with our parent and those above it."""
    pids = [os.getppid(), *(100_000_000 + n for n in range(len(chain)))]
    for (name, words), pid, above in zip(chain, pids, pids[1:], strict=False):
        (folder / str(pid)).mkdir(parents=True)
        parent = above if above != pids[len(chain)] else 1
        (folder / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} 1 1")
        (folder / str(pid) / "cmdline").write_text("\0".join((*words, "")))
    return folder


@pytest.mark.requirement("approval-person-unforgeable")
@pytest.mark.parametrize("command", [("approve", "7b1c"), ("deny", "7b1c"), ("pin", "set")])
def test_inside_a_worker_or_an_agent_nothing_is_decided(
    standin: Standin,
    postroom: Run,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
):
    answers(standin, approval(), said(settled("allowed")))
    for name, who in belonging.MARKS.items():
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            done = postroom(*command)
        assert (done.status, f"this runs inside {who}" in done.err) == (6, True)
    assert not sent(standin)


@pytest.mark.requirement("approval-person-unforgeable")
@pytest.mark.parametrize(
    "chain",
    [
        [("bash", ("bash",)), ("claude", ("claude",))],
        [("sh) (x", ("sh",)), ("codex", ("/usr/bin/codex", "exec"))],
        [("node", ("node", "/usr/lib/node_modules/bin/gemini.js")), ("init", ("init",))],
    ],
)
def test_below_an_agents_process_nothing_is_decided(tmp_path: Path, chain: Any):
    with pytest.raises(Forbidden):
        belonging.refuse_agents("approve", {}, proc(tmp_path, *chain))


def test_below_a_persons_shell_everything_goes(tmp_path: Path):
    chain = [("bash", ("-bash",)), ("node", ("node", "server.js")), ("sshd", ("sshd: claude",))]
    belonging.refuse_agents("approve", {}, proc(tmp_path, *chain))
