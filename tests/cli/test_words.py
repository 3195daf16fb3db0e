"""What a newcomer types out of habit: other names, several workers, a task without a nick, a slip of a finger."""

from __future__ import annotations

import json
from typing import Any

import pytest

from postroom.build import commit, version
from postroom.cli.root import GROUPS, OTHER_NAMES, SUMMARIES
from postroom.cli.status_lines import status_lines
from tests.cli.conftest import Run
from tests.cli.test_status import worker
from tests.client.standin import BOB, ME, Standin, instant, listed, problem, status


@pytest.mark.requirement("cli-words-expected")
def test_the_help_has_its_commands_in_groups(postroom: Run):
    said = postroom("--help").out
    assert next(iter(SUMMARIES)) in GROUPS  # no command stands above the first heading
    places = [said.index(f"\n{heading}:\n") for heading in GROUPS.values()]
    assert places == sorted(places)
    workers = said[places[1] : places[2]]
    assert "  spawn " in workers
    assert "  remove " in workers
    assert "  delegate " not in workers
    assert all(f"\n  {name} " in said for name in SUMMARIES)


@pytest.mark.requirement("cli-words-expected")
@pytest.mark.usefixtures("standin")
def test_ps_is_the_status(postroom: Run):
    assert postroom("ps").out == postroom("status").out
    assert "post room" in postroom("ps").out


def test_ls_is_who_has_an_address(postroom: Run, standin: Standin):
    standin.answer("GET /v1/agents", {"agents": []})
    assert OTHER_NAMES["ls"] == "agents"
    assert postroom("ls").status == 0


def test_help_is_that_of_the_command(postroom: Run):
    assert postroom("help").out == postroom("--help").out
    assert postroom("help", "task", "list").out == postroom("task", "list", "--help").out
    assert postroom("help", "ps").out == postroom("status", "--help").out
    wrong = postroom("help", "stats")
    assert wrong.status == 2
    assert "Did you mean 'status'?" in wrong.err
    assert postroom("help", "stop", "bob").status == 2


@pytest.mark.requirement("cli-errors-one-line")
def test_several_workers_are_stopped_with_one_command(postroom: Run, standin: Standin):
    standin.answer("POST /v1/workers/bob/stop", worker("bob"))
    standin.answer(
        "POST /v1/workers/carl/stop", problem("not-found", "nobody is called 'carl'"), 404
    )
    standin.answer("POST /v1/workers/dora/stop", worker("dora"))
    ended = postroom("stop", "bob", "@carl", "dora", "@bob")
    assert ended.out == "stopped @bob\nstopped @dora\n"
    assert ended.err == "postroom: nobody is called 'carl'\n"
    assert ended.status == 4
    assert len(standin.calls("POST /v1/workers/bob/stop")) == 1
    both = json.loads(postroom("stop", "bob", "dora", "--json").out)
    assert [each["nick"] for each in both["workers"]] == ["bob", "dora"]


def test_all_that_run_are_stopped_with_one_word(postroom: Run, standin: Standin):
    ended = worker("carl") | {"desired": "stopped", "state": "stopped"}
    standin.answer("GET /v1/workers", {"workers": [worker("bob"), ended]})
    standin.answer("POST /v1/workers/bob/stop", worker("bob"))
    assert postroom("stop", "--all").out == "stopped @bob\n"
    assert len(json.loads(postroom("stop", "--all", "--json").out)["workers"]) == 1
    assert postroom("stop").status == 2
    assert postroom("stop", "bob", "--all").status == 2


def test_several_workers_are_restarted_interrupted_and_removed(postroom: Run, standin: Standin):
    for nick in ("bob", "carl"):
        standin.answer(f"POST /v1/workers/{nick}/restart", worker(nick, started=True))
        said = {"worker": BOB | {"nick": nick}, "by": ME, "channel": "cli", "reason": ""}
        sent = {"approval": None, "interrupt": {"id": 1, "at": instant(), **said}}
        standin.answer(f"POST /v1/workers/{nick}/control", sent)
        standin.answer(f"POST /v1/workers/{nick}/revoke", worker(nick))
        standin.answer(f"GET /v1/workers/{nick}", worker(nick))
        standin.answer(f"DELETE /v1/workers/{nick}", {"nick": nick, "uid": "b" * 32, "folder": ""})
    for words in (("restart", "--same"), ("interrupt",), ("revoke",), ("remove",)):
        said = postroom(*words, "bob", "carl")
        assert (said.status, [line.split("@")[1][:3] for line in said.out.splitlines()]) == (
            0,
            ["bob", "car"],
        ), said


@pytest.mark.requirement("cli-errors-one-line")
def test_of_several_the_worst_is_the_exit_status(postroom: Run, standin: Standin):
    """One agent has ended at once, one nick is nobody's: each has its line."""
    failed = worker("bob", state="failed", detail="no", started=False)
    standin.answer("POST /v1/workers/bob/restart", failed)
    standin.answer("POST /v1/workers/carl/restart", problem("not-found", "no carl"), 404)
    ended = postroom("restart", "--same", "bob", "carl")
    assert ended.status == 4
    assert [line for line in ended.err.splitlines() if line.startswith("postroom: ")] == [
        "postroom: @bob ended at once: no",
        "postroom: no carl",
    ]


@pytest.mark.requirement("cli-words-expected")
@pytest.mark.parametrize(
    "words", [("send", "@bop", "hi"), ("stop", "bop"), ("stop", "bop", "carl")]
)
def test_a_nick_that_is_nearly_one_is_named(
    postroom: Run, standin: Standin, words: tuple[str, ...]
):
    nobody = problem("unknown-recipient", f"nobody is called {words[1]!r}", "postroom agents")
    for call in ("POST /v1/messages", "POST /v1/workers/bop/stop"):
        standin.answer(call, nobody, 404)
    standin.answer("POST /v1/workers/carl/stop", worker("carl"))
    standin.answer("GET /v1/agents", {"agents": [listed(BOB), listed(ME)]})
    ended = postroom(*words)
    assert ended.status == 4
    assert "did you mean @bob?" in ended.err


def test_who_may_not_read_the_list_is_told_nobody(postroom: Run, standin: Standin):
    nobody = problem("unknown-recipient", "nobody is called '@bop'", "ask them")
    standin.answer("POST /v1/messages", nobody, 404)
    standin.answer("GET /v1/agents", problem("forbidden", "not yours"), 403)
    ended = postroom("send", "@bop", "hi")
    assert ended.err.splitlines() == ["postroom: nobody is called '@bop'", "  try: ask them"]


@pytest.mark.parametrize(
    "words", [("Greet me",), ("Greet me", "now"), ("--wait", "review src/ for races")]
)
def test_a_task_without_a_nick_is_asked_to_whom(
    postroom: Run, standin: Standin, words: tuple[str, ...]
):
    ended = postroom("delegate", *words)
    assert ended.status == 2
    assert "To whom? @NICK or --skill" in ended.err
    assert not standin.requests


def test_a_setting_that_is_nearly_one_is_named(postroom: Run):
    ended = postroom("config", "set", "port", "0")
    assert ended.status == 2
    assert "did you mean nats.port or http.port?" in ended.err
    assert "sandbox" not in ended.err
    assert "did you mean screen.notify?" in postroom("config", "get", "screen.notfy").err
    assert "postroom config list" in postroom("config", "get", "zzzzzzzz").err


@pytest.mark.requirement("cli-status-attention")
def test_the_status_says_that_command_and_post_room_differ(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("postroom.build.commit", lambda: "a" * 40)
    monkeypatch.setattr("postroom.cli.status_lines.commit", lambda: "a" * 40)

    def lines(reached: str = "", **changes: str) -> list[str]:
        said: Any = status(**changes)
        return status_lines(said, 0.0, width=None, reached=reached)

    same = lines(commit="a" * 40)
    assert same[0].startswith("post room 0.1.0 (aaaaaaaaaa) at http://127.0.0.1:1, you are ")
    assert len(same) == len(lines()) == 2  # where one of the two is not known, nothing is said
    other = lines(commit="b" * 40)
    assert other[1] == (
        "this command is 0.1.0 (aaaaaaaaaa), the post room 0.1.0 (bbbbbbbbbb); "
        "its next start brings them together: postroom down, postroom up"
    )
    assert "postroom down" not in lines("https://box.example:4281", commit="b" * 40)[1]
    assert "the post room 0.2.0" in lines(version="0.2.0")[1]


def test_the_status_of_another_machine_names_the_url_by_which_one_came():
    said: Any = status()
    (first, *_) = status_lines(said, 0.0, width=None, reached="https://box.example:4281")
    assert first == "post room 0.1.0 at https://box.example:4281, you are @alice"


def test_the_version_is_said_in_json_too(postroom: Run):
    assert postroom("version").out == postroom("--version").out == f"postroom {version()}\n"
    assert json.loads(postroom("version", "--json").out) == {
        "version": "0.1.0",
        "commit": commit(),
    }
