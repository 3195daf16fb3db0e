"""What is written is taken by the real clients: they load it, and say so themselves. No model is asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from postroom.connect import places, writing
from postroom.connect.clients import CLIENTS
from postroom.connect.clients.base import Home, Installed, events_of
from postroom.connect.clients.codex_trust import trusted
from postroom.templates.programs import Machine
from tests.agents import hand_installed
from tests.agents.programs import CLAUDE, CODEX, NODE, installed


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home, below a folder with a name of many kinds of signs."""
    home = tmp_path / "it's a home $x"
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    return home


def connected(person: Path, client: str) -> Home:
    machine = Machine(person, {"HOME": str(person), "PATH": os.environ["PATH"]}, person)
    home = CLIENTS[client].home(machine)
    there = Installed(places.write_hook())
    writing.write(CLIENTS[client].parts(home, there), writing.receipt_of(client, home))
    return Home(home, machine, there)


def says(person: Path, *words: str | Path) -> str:
    """What a program prints of itself."""
    environment = {
        "HOME": str(person),
        "PATH": f"{NODE.parent}:{os.environ['PATH']}",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    done = subprocess.run(
        words,
        cwd=person / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.requirement("connect-doctor-tells")
def test_codex_knows_the_hooks_and_waits_for_approval(person: Path) -> None:
    program = installed(CODEX)
    home = connected(person, "codex")
    machine = Machine(person, {**home.machine.env, "PATH": str(program.parent)}, person)

    (remark,) = trusted(Home(home.path, machine, home.installed), home.installed.mark("codex"))

    hooks = len(events_of("codex"))
    assert remark.detail.startswith(f"you have approved 0 of {hooks} hooks")
    assert not remark.well


def test_claude_code_loads_the_plugin_folder(person: Path) -> None:
    program = installed(CLAUDE)
    connected(person, "claude")

    said = says(person, program, "plugin", "list")

    assert "postroom@skills-dir" in said
    assert "loaded" in said


@pytest.mark.slow
def test_gemini_loads_the_extension(person: Path) -> None:
    program = hand_installed.installed("gemini")
    connected(person, "gemini")

    assert "postroom (1.0.0)" in says(person, program, "extensions", "list")


@pytest.mark.slow
def test_opencode_loads_the_plugin_which_adds_the_server(person: Path) -> None:
    program = hand_installed.installed("opencode")
    connected(person, "opencode")

    assert f"sh {places.hook()} opencode mcp" in says(person, program, "mcp", "list")


@pytest.mark.requirement("connect-bytes-come-back")
def test_what_codex_makes_of_its_file_meanwhile_is_what_it_would_have_made_without_us(
    person: Path,
) -> None:
    program = installed(CODEX)
    alone = person / "alone"
    texts = '# mine\nmodel = "m"  # here\n\n[mcp_servers.mine]\ncommand="x"'
    for home in (person / ".codex", alone):
        home.mkdir()
        (home / "config.toml").write_text(texts)
    home = connected(person, "codex")

    for folder in (home.path, alone):
        words = ("env", f"CODEX_HOME={folder}", program, "mcp", "add", "other", "--", "echo")
        assert "Added" in says(person, *words)
    written = (home.path / "config.toml").read_text()
    assert "[mcp_servers.postroom]" in written
    parts = CLIENTS["codex"].parts(home.path, home.installed)
    assert writing.plan(parts, writing.receipt_of("codex", home.path)) == []
    writing.undo(parts, writing.receipt_of("codex", home.path))

    assert (home.path / "config.toml").read_text() == (alone / "config.toml").read_text()
    assert not (home.path / "hooks.json").exists()
