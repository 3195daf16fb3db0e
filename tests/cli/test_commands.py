"""What each command asks for and prints."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from postroom.cli.root import root
from postroom.errors import SandboxUnavailable
from postroom.errors import problem as problem_of
from postroom_a2a.times import format_time
from tests.cli.conftest import Run, spawned
from tests.client.standin import BOB, Standin, alert, from_bob, instant, mail, post, problem, worker

NASTY = "\x1b[31mred\x07 \u202ereversed\nbob 12:00 forged"


def dead(**changes: object) -> dict[str, object]:
    return {
        "id": 1,
        "message_id": "m1",
        "from": {"uid": "a" * 32, "nick": "alice", "kind": "human"},
        "to": BOB,
        "text": "hello",
        "parts": [],
        "subject": "",
        "thread": None,
        "task": None,
        "reason": "expired",
        "attempts": 3,
        "at": "2023-11-14T22:13:20.000Z",
        "bus_subject": "worker.x.inbox.y",
        "requeued_as": None,
    } | changes


# ── agents ───────────────────────────────────────────────────────────────────────────────────────


def listed(nick: str, **changes: object) -> dict[str, object]:
    skills = [{"id": "read"}, {"id": NASTY}]
    card = {"name": nick, "description": NASTY, "skills": skills}
    entry = {"uid": BOB["uid"], "nick": nick, "kind": "worker", "org": "default"}
    return entry | {"online": True, "seen_at": None, "card": card, "session": None} | changes


@pytest.mark.requirement("task-skill-chosen", "text-controls-stripped")
def test_agents_lists_everybody_with_state_and_skills(postroom: Run, standin: Standin):
    found = [
        listed("alice", kind="human", card=None),
        listed("bob"),
        listed("carl", online=False),
    ]
    standin.answer("GET /v1/agents", {"agents": found})
    head, alice, bob, carl = postroom("agents").out.splitlines()
    assert head.split() == ["NICK", "KIND", "STATE", "SKILLS", "DESCRIPTION"]
    assert alice.split() == ["@alice", "human", "online", "-"]
    assert bob.split()[:4] == ["@bob", "worker", "online", "read,"]
    assert carl.split()[2] == "offline"
    assert bob.endswith("bob 12:00 forged")
    assert "\x1b" not in bob
    assert "\u202e" not in bob
    assert json.loads(postroom("agents", "--json").out) == {"agents": found}


@pytest.mark.requirement("task-skill-chosen")
def test_agents_asks_for_a_skill(postroom: Run, standin: Standin):
    standin.answer("GET /v1/agents", {"agents": []})
    assert postroom("agents", "--skill", "fly").out == "nobody has the skill fly\n"
    assert standin.requests[-1].query == {"skill": "fly"}
    assert postroom("agents", "list", "--kind", "service").out == "nobody\n"
    assert standin.requests[-1].query == {"kind": "service"}


# ── spawn, stop, restart ─────────────────────────────────────────────────────────────────────────


def write_template(folder: Path) -> Path:
    path = folder / "reader.toml"
    path.write_text(
        '[worker]\nname = "reader"\n[workstation]\nfiles = ["reader.py"]\ncommand = ["sh"]\n'
        '[overrides]\na = ""\nd = ""\n'
    )
    (folder / "reader.py").write_text("print()\n")
    return path


def test_spawn_sends_the_template_with_its_files_and_says_how_it_is_walled(
    postroom: Run, standin: Standin, tmp_path: Path
):
    standin.answer("POST /v1/workers", worker(), 201)
    path = write_template(tmp_path)
    ended = postroom(
        "spawn", str(path), "--project", "#main", "--name", "@bob", "--set", "a=b=c", "--set", "d=x"
    )
    assert ended.out == "spawned @bob in #main, sandbox bubblewrap: enforced\n"
    body = standin.requests[-1].body
    assert body["template"] == path.read_text()
    assert set(body["files"]) == {"reader.py"}
    assert body["set"] == {"a": "b=c", "d": "x"}
    assert (body["name"], body["project"]) == ("bob", "main")


def test_spawn_names_the_folder_to_work_on_by_its_whole_path(
    postroom: Run, standin: Standin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    standin.answer("POST /v1/workers", worker(), 201)
    template = str(write_template(tmp_path))
    (tmp_path / "app").mkdir()
    monkeypatch.chdir(tmp_path)
    postroom("spawn", template, "-w", "app", "--as", "copy")
    body = standin.requests[-1].body
    assert (body["workspace"], body["mode"]) == (str(tmp_path / "app"), "copy")
    missing = postroom("spawn", template, "--workspace", "nothing")
    assert (missing.status, f"{tmp_path}/nothing is not a folder" in missing.err) == (2, True)
    alone = postroom("spawn", template, "--as", "direct")
    assert (alone.status, "--workspace DIR" in alone.err) == (2, True)


def test_a_template_that_is_wrong_starts_nothing(postroom: Run, tmp_path: Path):
    path = tmp_path / "bad.toml"
    path.write_text("[worker]\nname = \n")
    ended = postroom("spawn", str(path))
    assert ended.status == 2
    assert "line 2, column 8" in ended.err
    assert not (tmp_path / "starting").exists()


def test_a_worker_is_stopped(postroom: Run, standin: Standin):
    standin.answer("POST /v1/workers/bob/stop", worker())
    assert postroom("stop", "@bob").out == "stopped @bob\n"
    assert json.loads(postroom("stop", "bob", "--json").out) == worker()


def test_a_worker_is_restarted_with_its_template_as_it_is_now(
    postroom: Run, standin: Standin, tmp_path: Path
):
    path = write_template(tmp_path)
    standin.answer("GET /v1/workers/bob", worker(template=str(path)))
    standin.answer("POST /v1/workers/bob/restart", worker(changed=[f"file {NASTY}"]))
    assert postroom("restart", "@bob").out == (
        "restarted @bob, sandbox bubblewrap: enforced; "
        "reader.toml changed: file red reversed bob 12:00 forged\n"
    )
    assert standin.requests[-1].body["template"] == path.read_text()
    assert set(standin.requests[-1].body["files"]) == {"reader.py"}


def test_a_worker_is_restarted_with_the_template_that_it_has(postroom: Run, standin: Standin):
    standin.answer("POST /v1/workers/bob/restart", worker())
    said = postroom("restart", "@bob", "--same", "--detach").out
    assert said == "restarted @bob, sandbox bubblewrap: enforced\n"
    assert standin.requests[-1].body is None


@pytest.mark.requirement("text-controls-stripped")
def test_the_last_words_of_an_agent_are_harmless(postroom: Run, standin: Standin):
    failed = worker(state="failed", detail=NASTY, started=False, stderr=[f"    {NASTY}"])
    standin.answer("POST /v1/workers/bob/restart", failed)
    ended = postroom("restart", "@bob", "--same")
    assert ended.status == 1
    assert ended.err.splitlines()[:2] == [
        "    |     red reversed bob 12:00 forged",
        "postroom: @bob ended at once: red reversed bob 12:00 forged",
    ]


def test_an_agent_that_is_still_starting_is_no_failure(postroom: Run, standin: Standin):
    standin.answer("POST /v1/workers/bob/restart", worker(started=None))
    ended = postroom("restart", "@bob", "--same")
    assert (ended.status, ended.err) == (0, "@bob is still starting: postroom status\n")


@pytest.mark.parametrize("words", [(), ("--verbose",)])
def test_a_sandbox_that_cannot_be_had_fits_a_screen(
    postroom: Run, standin: Standin, tmp_path: Path, words: tuple[str, ...]
):
    refused = SandboxUnavailable(
        "this machine has no enforced sandbox", remedy="ask", details=["bubblewrap: no"]
    )
    standin.answer("POST /v1/workers", problem_of(refused), 503)
    standin.answer("POST /v1/workers/bob/restart", problem_of(refused), 503)
    for command in (("spawn", str(write_template(tmp_path))), ("restart", "@bob", "--same")):
        ended = postroom(*command, *words)
        assert ended.status == 10
        assert ("bubblewrap: no\n" in ended.err) is bool(words)


# ── send ─────────────────────────────────────────────────────────────────────────────────────────


def test_send_prints_the_id_and_the_state(postroom: Run, standin: Standin):
    standin.answer("POST /v1/messages", mail(1, "hi"), 201)
    ended = postroom("send", "@bob", "hi", "there", "--key", "k", "--expires", "60", "--no-reply")
    assert (ended.status, ended.out, ended.err) == (0, "m1 accepted\n", "")
    body = standin.requests[-1].body
    assert body == {
        "to": "@bob",
        "text": "hi there",
        "expects_reply": False,
        "key": "k",
        "expires_in": 60.0,
    }


@pytest.mark.requirement("mail-expiry-shown")
def test_send_and_inbox_say_until_when_a_message_waits_to_be_seen(postroom: Run, standin: Standin):
    until = format_time(time.time() + 3599)
    standin.answer("POST /v1/messages", mail(1, "hi", expires_at=until), 201)
    assert postroom("send", "@bob", "hi").out == "m1 accepted, expires in 59 min\n"
    standin.answer("GET /v1/inbox", {"messages": [mail(1, "hi", expires_at=until)], "next": 1})
    assert "expires in 59 min" in postroom("inbox", "--peek").out
    standin.answer("GET /v1/messages/m1", mail(1, "hi", expires_at=until, state="seen"))
    assert postroom("receipt", "m1").out == "m1 seen\n"


# ── threads and the archive ──────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("mail-threads")
def test_threads_and_the_messages_of_one_are_shown(postroom: Run, standin: Standin):
    thread = {
        "id": "plan",
        "subject": "May",
        "parties": [BOB],
        "messages": 3,
        "unread": 1,
        "seq": 9,
        "from": BOB,
        "text": NASTY,
        "at": instant(1),
    }
    standin.answer("GET /v1/threads", {"threads": [thread], "next": None})
    out = postroom("threads").out
    assert all(word in out for word in ("plan", "@bob", "May", "3", "@bob: red reversed"))
    assert json.loads(postroom("threads", "--json").out) == {"threads": [thread]}
    standin.answer("GET /v1/messages", {"messages": [mail(2, "two"), mail(1, "one")]})
    out = postroom("thread", "plan").out
    assert out.index("one") < out.index("two")
    assert standin.requests[-1].query == {"thread": "plan", "limit": "50"}


@pytest.mark.requirement("mail-archive-kept")
def test_feeds_are_listed_with_what_is_new_and_noted_as_read(postroom: Run, standin: Standin):
    feeds = [
        {"project": "shop", "read": 4, "unread": 1000},
        {"project": "api", "read": 0, "unread": 2},
    ]
    standin.answer("GET /v1/feeds", {"feeds": feeds, "next": None})
    assert postroom("feeds").out.split() == ["FEED", "UNREAD", "#api", "2", "#shop", "1000+"]
    read = {"project": "shop", "read": 9, "unread": 0}
    standin.answer("POST /v1/projects/shop/read", read)
    assert postroom("feeds", "read", "#shop").out == "#shop is read\n"


@pytest.mark.requirement("mail-archive-kept")
def test_messages_are_put_away_and_taken_out_again(postroom: Run, standin: Standin):
    standin.answer("GET /v1/messages/m1", mail(1, "one"))
    standin.answer("POST /v1/inbox/archive", {"count": 1, "unknown": []})
    assert postroom("inbox", "archive", "m1").out == "put away 1 message\n"
    assert standin.requests[-1].body == {"ids": ["m1"], "archived": True}
    assert postroom("inbox", "archive", "m1", "--back").out == "took out 1 message again\n"
    assert standin.requests[-1].body == {"ids": ["m1"], "archived": False}
    assert postroom("inbox", "archive", "--read").out == "put away 1 message\n"
    assert standin.requests[-1].body == {"read": True, "archived": True}
    standin.answer("GET /v1/inbox", {"messages": [from_bob(1, "one")], "next": 1})
    assert "one" in postroom("inbox", "--archived", "--peek").out
    assert standin.requests[-1].query["archived"] == "1"
    for words in ((), ("m1", "--read"), ("--read", "--back")):
        assert postroom("inbox", "archive", *words).status == 2


@pytest.mark.parametrize("words", [[], ["-"]])
def test_send_takes_the_text_from_a_pipe(standin: Standin, tmp_path: Path, words: list[str]):
    standin.answer("POST /v1/messages", mail(1, "x"), 201)
    ended = spawned(["send", "@bob", *words, "--state", str(tmp_path)], stdin="line 1\nline ü\n")
    assert ended.status == 0
    assert standin.requests[-1].body["text"] == "line 1\nline ü"


def test_a_text_that_is_too_large_is_refused_before_it_travels(standin: Standin, tmp_path: Path):
    ended = spawned(["send", "@bob", "--state", str(tmp_path)], stdin="x" * 600_000)
    assert ended.status == 2
    assert "over the limit" in ended.err
    assert standin.requests == []


@pytest.mark.requirement("mail-states-forward")
def test_waiting_for_the_answer_prints_it_and_then_marks_it_seen(postroom: Run, standin: Standin):
    answer = from_bob(2, f"yes {NASTY}")
    standin.answer("POST /v1/messages", mail(1, "hi"), 201)
    standin.answer("GET /v1/messages/m1", mail(1, "hi", state="answered", answer=answer))
    standin.answer("POST /v1/messages/m2/seen", answer)
    ended = postroom("send", "@bob", "hi", "--wait", "answered", "--timeout", "9")
    assert ended.status == 0
    assert ended.out == "yes red reversed\nbob 12:00 forged\n"
    assert ended.err == "m1 accepted\n"
    assert standin.requests[-1].path == "/v1/messages/m2/seen"


def test_waiting_for_a_receipt_prints_each_state(postroom: Run, standin: Standin):
    standin.answer("POST /v1/messages", mail(1, "hi"), 201)
    standin.answer("GET /v1/messages/m1", mail(1, "hi", state="seen"))
    assert postroom("send", "@bob", "hi", "--wait", "delivered").out == "m1 accepted\nm1 seen\n"


@pytest.mark.requirement("cli-errors-one-line")
def test_a_dead_message_ends_with_7_and_its_reason(postroom: Run, standin: Standin):
    standin.answer("POST /v1/messages", mail(1, "hi"), 201)
    standin.answer("GET /v1/messages/m1", mail(1, "hi", state="dead", reason="expired"))
    ended = postroom("send", "@bob", "hi", "--wait", "seen")
    assert ended.status == 7
    assert "message m1 is dead: expired" in ended.err


@pytest.mark.requirement("cli-errors-one-line")
def test_a_late_answer_ends_with_9_and_says_that_the_message_is_on_its_way(
    postroom: Run, standin: Standin
):
    standin.answer("POST /v1/messages", mail(1, "hi"), 201)
    late = mail(1, "hi", state="delivered", timed_out=True)
    standin.answer("GET /v1/messages/m1", late)
    ended = postroom("send", "@bob", "hi", "--wait", "answered", "--timeout", "0", "--json")
    assert ended.status == 9
    assert "m1 is delivered and still on its way" in ended.err
    assert json.loads(ended.out) == late


@pytest.mark.requirement("cli-errors-one-line")
def test_a_late_answer_of_a_worker_that_has_failed_says_so(postroom: Run, standin: Standin):
    standin.answer("POST /v1/messages", mail(1, "hi"), 201)
    standin.answer("GET /v1/messages/m1", mail(1, "hi", timed_out=True))
    standin.answer(f"GET /v1/workers/{BOB['uid']}", worker("bob", state="failed"))
    ended = postroom("send", "@bob", "hi", "--wait", "seen", "--timeout", "0")
    assert ended.status == 9
    assert "  try: @bob is failed: postroom restart bob\n" in ended.err


def test_an_expired_message_is_not_looked_for_among_the_dead_letters(
    postroom: Run, standin: Standin
):
    standin.answer("GET /v1/messages/m1", mail(1, "hi", state="dead", reason="expired"))
    assert "deadletters" not in postroom("receipt", "m1", "--wait", "seen").err


def test_send_to_a_project_publishes_a_post(postroom: Run, standin: Standin):
    standin.answer("GET /v1/projects", {"projects": ["main"]})
    standin.answer("POST /v1/projects/main/posts", post(3, "hi"), 201)
    assert postroom("send", "#main", "hi").out == "p3 accepted\n"


# ── alerts ───────────────────────────────────────────────────────────────────────────────────────


def test_alerts_are_listed_one_a_line_the_newest_last_and_harmless(postroom: Run, standin: Standin):
    ended = alert(NASTY, id=5, at=instant(3), nick="bob", ended="cleared", ended_at=instant(4))
    standin.answer("GET /v1/alerts", {"alerts": [alert("full", id=9, at=instant(2)), ended]})
    first, second = postroom("alerts", "--all").out.splitlines()
    assert (first.split()[0], first.split()[-1]) == ("9", "full")
    assert second.startswith("5  ")
    assert "  @bob red reversed bob 12:00 forged; ended at " in second
    assert second.endswith(": cleared")
    assert json.loads(postroom("alerts", "--json").out)["alerts"][1]["id"] == 5
    standin._answers.clear()
    standin.answer("GET /v1/alerts", {"alerts": []})
    assert postroom("alerts").out == "no alerts\n"


def test_alerts_are_cleared_one_or_all_without_a_question(postroom: Run, standin: Standin):
    standin.answer("DELETE /v1/alerts/9", {"cleared": 1})
    standin.answer("DELETE /v1/alerts", {"cleared": 3})
    standin.answer("DELETE /v1/alerts/8", problem("not-found", "no alert 8 stands"), 404)
    assert postroom("alerts", "clear", "9").out == "cleared 1 alert\n"
    assert postroom("alerts", "clear").out == "cleared 3 alerts\n"
    assert postroom("alerts", "clear", "8").status == 4


# ── receipts ─────────────────────────────────────────────────────────────────────────────────────


def test_a_receipt_can_be_asked_for_later(postroom: Run, standin: Standin):
    standin.answer("GET /v1/messages/m1", mail(1, "hi", state="dead", reason="expired\x1b[2J"))
    ended = postroom("receipt", "m1")
    assert (ended.status, ended.out) == (0, "m1 dead: expired\n")
    assert postroom("receipt", "m1", "--wait", "seen").status == 7


# ── inbox ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("text-controls-stripped")
def test_the_inbox_shows_hostile_text_harmless_and_set_in(postroom: Run, standin: Standin):
    nasty = from_bob(1, NASTY) | {"from": BOB | {"nick": "b\x1b[1mob"}}
    standin.answer("GET /v1/inbox", {"messages": [nasty]})
    standin.answer("POST /v1/messages/m1/seen", nasty)
    ended = postroom("inbox")
    head, *text = ended.out.splitlines()
    assert head.endswith("@bob m1  (expects a reply)")
    assert text == ["    | red reversed", "    | bob 12:00 forged"]


def test_what_the_inbox_shows_is_seen_but_read_mail_is_not_marked_again(
    postroom: Run, standin: Standin
):
    old = from_bob(1, "old", state="seen")
    new = from_bob(2, "new", state="delivered")
    standin.answer("GET /v1/inbox", {"messages": [old, new]})
    standin.answer("POST /v1/messages/m2/seen", new)
    assert postroom("inbox", "--all", "--limit", "5").status == 0
    assert standin.requests[0].query == {"limit": "5"}
    assert [r.path for r in standin.requests[1:]] == ["/v1/messages/m2/seen"]


@pytest.mark.parametrize("option", ["--peek", "--json"])
def test_a_look_that_is_none_leaves_the_inbox_unread(postroom: Run, standin: Standin, option: str):
    standin.answer("GET /v1/inbox", {"messages": [from_bob(1, "hi\u202e")]})
    ended = postroom("inbox", option)
    assert ended.status == 0
    assert ended.out.isascii()
    assert standin.requests[0].query["unread"] == "1"
    assert len(standin.requests) == 1


def test_an_empty_inbox_says_so(postroom: Run, standin: Standin):
    standin.answer("GET /v1/inbox", {"messages": []})
    assert postroom("inbox").out == "no messages\n"


# ── dead letters ─────────────────────────────────────────────────────────────────────────────────


def test_dead_letters_are_listed_shown_sent_again_and_dropped(postroom: Run, standin: Standin):
    standin.answer("GET /v1/deadletters", {"deadletters": [dead(text=NASTY)]})
    standin.answer("GET /v1/deadletters/1", dead(text=NASTY, requeued_as="m9"))
    standin.answer("POST /v1/deadletters/1/requeue", {"id": "m9"}, 201)
    standin.answer("DELETE /v1/deadletters/1", None, 204)
    head, row = postroom("deadletters", "list").out.splitlines()
    assert head.split()[:5] == ["ID", "MESSAGE", "FROM", "TO", "REASON"]
    assert row.split()[:6] == ["1", "m1", "@alice", "@bob", "expired", "3"]
    assert "\x1b" not in row
    shown = postroom("deadletters", "show", "1").out.splitlines()
    assert shown[0] == "@alice to @bob, message m1"
    assert shown[2:] == [
        "sent again as m9",
        "    | red reversed",
        "    | bob 12:00 forged",
    ]
    assert postroom("deadletters", "requeue", "1").out == "sent again as m9\n"
    assert postroom("deadletters", "drop", "1").out == "dropped 1\n"


def test_dead_letters_in_json_are_objects(postroom: Run, standin: Standin):
    standin.answer("GET /v1/deadletters", {"deadletters": [dead()]})
    assert json.loads(postroom("deadletters", "list", "--json").out) == {"deadletters": [dead()]}


def test_a_dead_letter_that_is_not_there_ends_with_4(postroom: Run, standin: Standin):
    standin.answer("GET /v1/deadletters/d2", problem("not-found", "no dead letter d2"), 404)
    ended = postroom("deadletters", "show", "d2")
    assert (ended.status, ended.err) == (4, "postroom: no dead letter d2\n")


def commands(group: click.Group, context: click.Context) -> Iterator[click.Command]:
    """Every command below a group."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from commands(command, click.Context(command, parent=context))


def test_no_argument_of_a_command_has_the_name_of_an_option():
    for command in commands(root, click.Context(root)):
        arguments = {each.name for each in command.params if isinstance(each, click.Argument)}
        options = {each.name for each in command.params if isinstance(each, click.Option)}
        assert not arguments & options, command.name


def test_no_help_is_wider_than_80_columns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in (root, *commands(root, click.Context(root))):
        shown = command.get_help(click.Context(command, info_name=command.name)).splitlines()
        assert [line for line in shown if len(line) > 80] == [], command.name
