"""`postroom agents`: show, add and remove."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run
from tests.client.standin import BOB, Standin, listed, problem

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
