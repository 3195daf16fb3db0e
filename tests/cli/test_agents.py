"""`postroom agents`: show, add and remove."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run
from tests.client.standin import BOB, ME, Standin, listed, mail, problem, status

NASTY = "\x1b[31mred\x07 \u202ereversed\nbob 12:00 forged"


def test_agents_show_says_who_it_is_and_what_it_can_do(postroom: Run, standin: Standin):
    skills = [{"id": "read", "description": NASTY}]
    card = {"name": "bob", "description": NASTY, "skills": skills, "defaultInputModes": ["a/b"]}
    standin.answer(
        "GET /v1/agents/bob",
        BOB
        | {
            "org": "acme",
            "online": True,
            "card": card,
            "seen_at": "2026-01-02T03:04:05Z",
            "session": None,
        },
    )
    lines = postroom("agents", "show", "@bob").out.splitlines()
    assert lines[0] == "@bob: worker, online"
    assert lines[2:] == [
        "last seen    2026-01-02T03:04:05Z",
        f"A2A          {standin.url}/orgs/acme/a2a/bob",
        "description  red reversed bob 12:00 forged",
        "takes        a/b",
        "skill        read: red reversed bob 12:00 forged",
    ]


def test_the_key_of_an_added_agent_is_shown_once_or_kept_in_a_private_file(
    postroom: Run, standin: Standin, tmp_path: Path
):
    otto = {"uid": "ab" * 16, "nick": "otto", "kind": "external"}
    at = {"created_at": None, "expires_at": None, "used_at": None, "revoked_at": None}
    key = {"id": "1", "agent": otto, "name": "", "scopes": [], "state": "valid", "made_by": None}
    made = listed(otto, key={**key, **at, "key": "a2a_x"})
    standin.answer("POST /v1/agents", made, 201)
    card, file = tmp_path / "card.json", tmp_path / "otto.key"
    card.write_text('{"description": "Knows words."}')
    shown = postroom("agents", "add", "otto", "--external", "--card", str(card), "--scope", "read")
    assert shown.out.splitlines()[1] == "its key, shown this once: a2a_x"
    assert standin.requests[-1].body == {
        "nick": "otto",
        "kind": "external",
        "card": {"description": "Knows words."},
        "scopes": ["read"],
        "public": False,
    }
    kept = postroom("agents", "add", "otto", "--service", "--key-file", str(file), "--json")
    assert "a2a_x" not in kept.out + kept.err
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("a2a_x\n", 0o600)
    # An existing file is not overwritten, and nothing was added for it.
    count = len(standin.requests)
    again = postroom("agents", "add", "otto", "--external", "--key-file", str(file))
    assert (again.status, len(standin.requests)) == (10, count)


def test_a_failed_add_leaves_no_key_file(postroom: Run, standin: Standin, tmp_path: Path):
    standin.answer("POST /v1/agents", problem("name-taken", "taken"), 409)
    file = tmp_path / "otto.key"
    assert postroom("agents", "add", "otto", "--external", "--key-file", str(file)).status == 5
    assert not file.exists()


def test_agents_that_are_not_added_are_named_with_what_makes_them(postroom: Run):
    refused = postroom("agents", "add", "otto")
    assert (refused.status, "postroom spawn FILE" in refused.err) == (2, True)


def test_agents_remove_names_who_is_gone(postroom: Run, standin: Standin):
    standin.answer("DELETE /v1/agents/otto", {"uid": "ab" * 16, "nick": "otto"})
    assert postroom("agents", "remove", "@otto").out == "removed @otto\n"


def session(**changes: object) -> dict[str, object]:
    at = "2023-11-14T22:13:20.000Z"
    shown = {"client": "claude", "folder": f"/srv/{NASTY}", "state": "busy"}
    return shown | {"state_at": at, "heard_at": at} | changes


def test_agents_shows_how_a_session_stands_and_no_folder_acts_on_the_terminal(
    postroom: Run, standin: Standin
):
    app = {"uid": "ab" * 16, "nick": "app", "kind": "external"}
    found = [
        listed(app, session=session()),
        listed(app, nick="gone", online=False, session=session(state="gone", folder="")),
        listed(app, nick="left", online=False, session=session()),
    ]
    standin.answer("GET /v1/agents", {"agents": found})
    _, busy, gone, left = postroom("agents").out.splitlines()
    assert busy.split()[:3] == ["@app", "session", "busy"]
    assert "claude, /srv/red reversed bob 12:00 forged, heard " in busy
    assert gone.split()[:3] == ["@gone", "session", "gone"]
    assert left.split()[:3] == ["@left", "session", "away"]
    standin.answer("GET /v1/agents/app", found[0])
    shown = postroom("agents", "show", "@app").out.splitlines()
    assert shown[3].startswith(
        "session      busy, claude, /srv/red reversed bob 12:00 forged, heard"
    )


def test_a_session_is_renamed(postroom: Run, standin: Standin):
    standin.answer("POST /v1/agents/app/rename", {"uid": "ab" * 16, "nick": "api"})
    done = postroom("agents", "rename", "@app", "@api")
    assert done.out == "@app is @api now\n"
    assert standin.requests[-1].body == {"nick": "@api"}


def test_status_lists_sessions_also_to_who_sees_no_workers(postroom: Run, standin: Standin):
    app = {"uid": "ab" * 16, "nick": "app", "key": "k", "project": "", "version": "2"}
    shown = app | {"owner": ME | {"kind": "human"}, "online": True} | session()
    standin._answers.clear()
    gone = shown | {"nick": "old", "state": "gone", "online": False}
    standin.answer("GET /v1/status", status(sessions=[gone, shown]))
    lines = postroom("status").out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("SESSION"))
    assert lines[at].split() == ["SESSION", "STATE", "CLIENT", "HEARD", "FOLDER"]
    assert lines[at + 1].split()[:3] == ["@app", "busy", "claude"]
    assert lines[at + 1].endswith("/srv/red reversed bob 12:00 forged")
    assert lines[at + 2] == "1 session gone, to be resumed (postroom agents)"


def test_send_says_what_its_sender_should_know_and_how_it_was_delivered(
    postroom: Run, standin: Standin
):
    note = "@app is gone: it gets this when it is resumed\x1b[31m"
    standin.answer("POST /v1/messages", mail(1, "hello", state="accepted", note=note), 201)
    done = postroom("send", "@app", "hello")
    assert done.err == "@app is gone: it gets this when it is resumed\n"
    how = {"how": "hook PostToolBatch"}
    standin.answer("GET /v1/messages/m1", mail(1, "hello", state="delivered", **how))
    assert postroom("receipt", "m1").out.endswith(" delivered by hook PostToolBatch\n")
    standin._answers.clear()
    standin.answer("GET /v1/messages/m1", mail(1, "hello", state="seen", **how))
    assert postroom("receipt", "m1").out.endswith(" seen, delivered by hook PostToolBatch\n")
