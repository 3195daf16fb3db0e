"""`postroom audit` against recorded answers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import pytest

from postroom.cli.commands.audit import AuditLines
from postroom.client.http import Client
from postroom.lines.text import columns
from postroom.protocol.audit import AuditRecord
from postroom_a2a.times import format_time
from tests.cli.conftest import Run, environment, spawned
from tests.client.standin import BOB, Standin, listed

CALL = "GET /v1/audit"
TASK = "0123456789abcdef" * 2


def line(**said: Any) -> str:
    said.setdefault("at", "2026-01-31T12:00:00.000Z")
    return AuditRecord(**said).encode().decode()


@pytest.fixture(autouse=True)
def agents(standin: Standin) -> None:
    standin.answer("GET /v1/agents", {"agents": [listed(BOB)]})


@pytest.mark.requirement("text-controls-stripped")
def test_each_record_is_one_line_with_names_for_uids(standin: Standin, postroom: Run):
    standin.answer(
        CALL,
        line(
            worker="b" * 32,
            protocol="nats",
            direction="out",
            verb="HPUB",
            subject=f"worker.{'c' * 32}.inbox.{'b' * 32}",
            size=312,
            task=TASK,
        )
        + line(
            worker="b" * 32,
            protocol="egress",
            direction="out",
            verb="POST",
            url="https://api.example.com/v1/messages",
            status=200,
            cause_task=TASK,
            cause_exact=True,
        )
        + "\n"
        + line(by="server", worker="d" * 32, protocol="nats", verb="open", reason="from 10.0.0.1"),
    )

    ended = postroom("audit")

    first, second, third = ended.out.splitlines()
    assert ended.status == 0
    assert "@bob" in first
    assert f"@bob sent a message to {'c' * 8}" in first
    assert "312 B" in first
    assert "task 01234567" in first
    assert "https://api.example.com/v1/messages  200  for task 01234567" in second
    assert third.endswith("from 10.0.0.1  (seen by the server)")
    assert "d" * 8 in third


def test_raw_shows_the_frames_themselves_and_a_refusal_is_a_sentence(
    standin: Standin, postroom: Run
):
    bob, other = "b" * 32, "c" * 32
    frame = {"protocol": "nats", "direction": "out", "verb": "PUB", "worker": bob}
    asked = line(**frame, subject=f"ctl.{bob}.tasks.open", size=52)
    refused = line(
        **frame, subject=f"worker.{other}.inbox.{other}", verdict="denied", reason="no right"
    )
    standin.answer(CALL, asked + refused)

    first, second = postroom("audit").out.splitlines()

    assert "@bob asked the control plane for its tasks" in first
    assert "@bob tried to write to somebody else's inbox  refused: no right" in second
    assert "PUB" in postroom("audit", "--raw").out
    assert "ctl.@bob.tasks.open" in postroom("audit", "--raw").out


@pytest.mark.requirement("text-controls-stripped")
def test_nothing_in_a_record_acts_on_the_terminal_and_denied_is_red(
    standin: Standin, postroom: Run, tmp_path: Path
):
    evil = line(worker="x\x1b[31mred\r\nforged", verb="P\x07UB", subject="a\u202eb\x1b]0;t\x07")
    denied = line(worker="b" * 32, verdict="denied", reason="over\x1b[2J the limit")
    standin.answer(CALL, evil + denied)

    ended = postroom("audit")

    assert len(ended.out.splitlines()) == 2
    assert not set("\x1b\x07\r\u202e") & set(ended.out)
    assert "DENIED: over" in ended.out
    plain = spawned(
        ["--state", str(tmp_path), "audit"], env=environment(NO_COLOR="1", FORCE_COLOR="1")
    )
    assert "\x1b" not in plain.out


@pytest.mark.requirement("text-controls-stripped")
def test_json_prints_the_records_as_they_are(standin: Standin, postroom: Run):
    standin.answer(CALL, line(worker="b" * 32, subject="ü\x1b") + line(verb="lost"))

    ended = postroom("audit", "--json")

    first, second = map(json.loads, ended.out.splitlines())
    assert first["subject"] == "ü\x1b"
    assert ended.out.isascii()
    assert "\x1b" not in ended.out
    assert second["verb"] == "lost"
    assert not standin.calls("GET /v1/agents")


@pytest.mark.parametrize(
    "arguments, query",
    [
        ([], {"limit": "100"}),
        (["--since", "2h"], {"since": "2h", "limit": "0"}),
        (["--worker", "@bob", "--denied"], {"worker": "bob", "denied": "true", "limit": "100"}),
        (["--task", "012345", "-n", "7"], {"task": "012345", "limit": "7"}),
        (["--follow"], {"follow": "true", "limit": "100"}),
    ],
)
def test_the_options_are_the_query(
    standin: Standin, postroom: Run, arguments: list[str], query: dict[str, str]
):
    standin.answer(CALL, "")

    assert postroom("audit", *arguments).status == 0

    [request] = standin.calls(CALL)
    assert request.query == query | {"plumbing": "false"}


@pytest.mark.requirement("audit-once-in-order")
def test_plumbing_is_counted_and_shown_on_demand(standin: Standin, postroom: Run):
    standin.answer(CALL, line(verb="HPUB", protocol="nats") + json.dumps({"omitted": 812}) + "\n")

    assert postroom("audit").out.splitlines()[-1] == "… 812 lines of plumbing not shown (--all)"
    said = postroom("audit", "--json")
    assert (len(said.out.splitlines()), "812 lines" in said.err) == (1, True)
    postroom("audit", "--all")
    assert "plumbing" not in standin.calls(CALL)[-1].query


@pytest.mark.requirement("audit-once-in-order")
def test_that_there_is_nothing_is_said(standin: Standin, postroom: Run):
    standin.answer(CALL, json.dumps({"omitted": 2}) + "\n")
    assert postroom("audit").out.splitlines()[-1] == "no records"
    standin._answers.clear()
    standin.answer(CALL, "")
    assert postroom("audit", "--denied").out == "nothing was denied\n"
    assert postroom("audit", "--json").out == ""


@pytest.mark.requirement("text-controls-stripped")
@pytest.mark.parametrize("width", [80, 100])
def test_in_a_terminal_no_line_is_wider_and_a_denial_shows_its_whole_reason(
    standin: Standin, tmp_path: Path, width: int
):
    reason = (
        "127.0.0.1 is not an address of the public internet; the operator can open it:"
        " POSTROOM_EGRESS_ALLOW_PRIVATE=127.0.0.1:18990"
    )
    now = format_time(time.time())
    denied = json.loads(
        line(
            at=now,
            worker="b" * 32,
            protocol="egress",
            direction="out",
            verb="CONNECT",
            url="http://127.0.0.1:18990/v1/messages/and/more",
            size=40705,
            verdict="denied",
            reason=reason,
        )
    )
    allowed = denied | {"verdict": "allowed", "reason": "", "subject": "worker." + "x" * 60}
    with Client.at(tmp_path) as client:
        lines = AuditLines(client)
        lines._columns = width
        shown = click.unstyle(lines.line(denied)).splitlines()
        [fine] = lines.line(allowed).splitlines()

    assert max(map(columns, [*shown, fine])) <= width
    assert " ".join(part.strip() for part in shown[1:]) == f"DENIED: {reason}"
    assert "http://127.0.0.1:18990/v1" in shown[0]
    assert "40705 B" in shown[0]


def test_what_the_post_room_refuses_is_said(standin: Standin, postroom: Run):
    problem = {"code": "invalid-input", "detail": "'x' is no time", "remedy": "10m", "status": 400}
    standin.answer(CALL, problem, 400)

    ended = postroom("audit", "--since", "x")

    assert "'x' is no time" in ended.err
    assert ended.status == 2


def test_a_line_that_is_no_record_is_a_fault_of_the_other_side(standin: Standin, postroom: Run):
    standin.answer(CALL, "[1]\n")

    assert postroom("audit").status == 8


def test_without_a_post_room_it_says_so(tmp_path: Path):
    assert spawned(["--state", str(tmp_path / "none"), "audit"]).status == 3


@pytest.mark.requirement("text-controls-stripped")
def test_what_was_denied_is_red(standin: Standin, tmp_path: Path):
    with Client.at(tmp_path) as client:
        lines = AuditLines(client)
        denied = lines.line({"verdict": "denied", "reason": "why", "verb": "PUB"})
        allowed = lines.line({"verdict": "allowed", "verb": "PUB"})

    assert denied.startswith("\x1b[31m")
    assert "\x1b" not in allowed
