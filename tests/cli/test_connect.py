"""`postroom connect`, `disconnect` and `doctor connect`, which need no post room."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postroom.cli.commands.login import save
from postroom.cli.root import run
from postroom.client.logins import Login, Logins
from postroom.connect import places
from postroom.connect.clients import claude, codex, gemini
from tests.cli.conftest import Run
from tests.cli.terminal import Terminal
from tests.client.standin import Standin
from tests.templates.machine import link, package


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home, with no client that is installed."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "POSTROOM_STATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for client in (claude, codex, gemini):
        monkeypatch.setattr(client, "MANAGED", tmp_path / "etc" / f"{client.NAME}.json")
    return home


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.requirement("connect-bytes-come-back")
@pytest.mark.parametrize("client", ["claude", "codex", "gemini", "opencode"])
def test_print_shows_what_would_be_written_and_writes_nothing(
    postroom: Run, home: Path, client: str
) -> None:
    said = postroom("connect", client, "--print")

    assert said.status == 0
    assert "/connect/hook" in said.out
    assert "new file" in said.out
    assert everything(home) == {}


def test_print_shows_what_to_add_by_hand_where_it_cannot_be_written(
    postroom: Run, home: Path
) -> None:
    config = home / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text("mcp_servers = {}\n")

    refused = postroom("connect", "codex", "--yes")
    assert refused.status == 2
    assert "--print" in refused.err
    said = postroom("connect", "codex", "--print")

    assert said.status == 0
    assert "cannot be changed here" in said.err
    assert "[mcp_servers.postroom]" in said.out
    assert everything(home) == {str(config): b"mcp_servers = {}\n"}


def test_without_a_terminal_nothing_is_written_unless_it_is_said_to_be(
    postroom: Run, home: Path
) -> None:
    refused = postroom("connect", "claude")
    assert refused.status == 2
    assert "--yes" in refused.err
    assert everything(home) == {}

    said = postroom("connect", "claude", "--yes")
    assert said.status == 0
    assert "/reload-plugins" in said.out
    assert "sessions get their address" in said.err
    assert (home / ".claude" / "skills" / "postroom" / "hooks" / "hooks.json").is_file()
    assert places.hook().is_file()
    again = postroom("connect", "claude", "--yes")
    assert "was connected already" in again.out
    assert "new file" not in again.out


def test_a_running_post_room_is_named(postroom: Run, standin: Standin) -> None:
    said = postroom("connect", "gemini", "--yes")

    assert said.err == ""
    assert "gets an address at http" in said.out


def test_what_is_chosen_stays_until_it_is_chosen_anew(postroom: Run, tmp_path: Path) -> None:
    postroom("connect", "claude", "--yes", "--wake-from", "@rev,workers", "--mute", "bot")
    postroom("connect", "codex", "--yes", "--mute", "none", "--headless")

    found = places.read_settings()
    assert (found.wake_from, found.mute, found.headless) == (("rev", "workers"), (), True)
    assert found.state == str(tmp_path)
    assert postroom("connect", "codex", "--yes", "--wake-from", "no nick").status == 2


def test_approvals_are_switched_on_for_one_client_and_it_is_said_what_it_shows(
    postroom: Run, home: Path
) -> None:
    hooks = home / ".claude" / "skills" / "postroom" / "hooks" / "hooks.json"
    postroom("connect", "codex", "--yes")
    assert "postroom approvals" not in postroom("connect", "claude", "--yes").out
    assert "PermissionRequest" not in hooks.read_text()

    said = postroom("connect", "claude", "--yes", "--approvals")

    assert "shows its own question at once" in said.out
    assert "with your PIN alone" in said.out
    assert "PermissionRequest" in hooks.read_text()
    assert "PermissionRequest" not in (home / ".codex" / "hooks.json").read_text()
    assert "nobody has answered there" in postroom("connect", "codex", "--yes", "--approvals").out
    postroom("connect", "claude", "--yes", "--no-approvals")
    assert "PermissionRequest" not in hooks.read_text()
    assert places.read_settings().approvals == ("codex",)
    assert postroom("connect", "gemini", "--yes", "--approvals").status == 2


def test_a_post_room_of_another_machine_is_the_login_of_its_person(
    postroom: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Login("box", "https://box.example:4281", "a2a_key", nick="ann", org="lab", kind="human")
    program = Login("bot", "https://box.example:4281", "a2a_other", nick="bot", kind="service")
    save(Logins({"box": mine, "bot": program}, "box"))
    monkeypatch.setenv("POSTROOM_URL", "box")
    monkeypatch.delenv("POSTROOM_STATE", raising=False)

    assert run(["connect", "claude", "--yes"]) == 0
    found = places.read_settings()
    assert (found.login, found.org, found.state) == ("box", "lab", "")

    monkeypatch.setenv("POSTROOM_URL", "bot")
    assert run(["connect", "claude", "--yes"]) == 2
    assert places.read_settings() == found


def test_the_list_says_which_homes_are_connected(
    postroom: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postroom("connect", "codex", "--yes")
    monkeypatch.setenv("CODEX_HOME", str(home / "second"))
    postroom("connect", "claude", "--yes")

    rows = [line.split() for line in postroom("connect").out.splitlines()]

    assert ["codex", "connected", str(home / ".codex")] in rows
    assert ["codex", "not", "connected", str(home / "second")] in rows
    assert ["claude", "connected", str(home / ".claude")] in rows


def test_disconnect_takes_all_homes_back_and_says_what_the_client_has_added(
    postroom: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = home / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text("# mine\n")
    postroom("connect", "codex", "--yes")
    trust = f'\n[hooks.state."{home}/.codex/hooks.json:stop:0:0"]\ntrusted_hash = "x"\n'
    config.write_text(config.read_text() + trust)
    monkeypatch.setenv("CODEX_HOME", str(home / "second"))
    postroom("connect", "codex", "--yes")

    said = postroom("disconnect", "codex")

    assert said.status == 0
    assert 'Codex keeps its own entries [hooks.state."…"]' in said.out
    assert config.read_text() == "# mine\n" + trust
    assert not (home / "second").exists()
    assert not places.hook().exists()
    assert "is not connected" in postroom("disconnect", "codex").out


def test_what_had_to_stay_is_an_error(postroom: Run, home: Path) -> None:
    postroom("connect", "opencode", "--yes")
    plugin = home / ".config" / "opencode" / "plugins" / "postroom.js"
    plugin.write_text("// mine")

    said = postroom("disconnect", "opencode")

    assert said.status == 5
    assert str(plugin) in said.err
    assert plugin.read_text() == "// mine"
    assert places.hook().exists()


@pytest.mark.parametrize("client", ["copilot", "qwen", "cursor", "mcp"])
def test_for_other_clients_the_entry_is_shown(postroom: Run, home: Path, client: str) -> None:
    assert postroom("connect", client).status == 2

    said = postroom("connect", client, "--print")

    server = json.loads(said.out)["mcpServers"]["postroom"]
    assert server["args"] == [str(places.hook()), client, "mcp"]
    assert places.hook().is_file()


def test_a_client_that_nobody_knows_is_refused_with_those_that_there_are(postroom: Run) -> None:
    for words in (("connect", "emacs"), ("disconnect", "emacs")):
        said = postroom(*words)
        assert said.status == 4
        assert "claude, codex, gemini, opencode" in said.err


# ── doctor ──────────────────────────────────────────────────────────────────────────────────────────────


def findings(postroom: Run) -> dict[tuple[str, str], list[dict[str, str]]]:
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for one in json.loads(postroom("doctor", "connect", "--json").out)["findings"]:
        found.setdefault((one["about"], one["what"]), []).append(one)
    return found


@pytest.mark.requirement("connect-doctor-tells")
def test_doctor_says_that_no_post_room_runs(postroom: Run) -> None:
    said = postroom("doctor", "connect")

    assert said.status == 10
    assert "postroom" in said.out
    assert "up" in said.out


@pytest.mark.requirement("connect-doctor-tells")
def test_doctor_says_whether_files_are_as_they_were_written(
    postroom: Run, home: Path, standin: Standin
) -> None:
    postroom("connect", "claude", "--yes")
    assert postroom("doctor", "connect").status == 0
    assert {one["state"] for one in findings(postroom)["claude", "files"]} == {"ok"}

    (home / ".claude" / "skills" / "postroom" / ".mcp.json").unlink()
    states = [one["state"] for one in findings(postroom)["claude", "files"]]
    assert sorted(states) == ["missing", "ok", "ok"]
    assert postroom("doctor", "connect").status == 10
    assert "postroom connect claude" in postroom("doctor", "connect").out


@pytest.mark.requirement("connect-doctor-tells")
def test_doctor_says_that_sessions_stayed_where_the_person_has_left(
    postroom: Run,
    standin: Standin,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    postroom("connect", "claude", "--yes")
    assert [one["state"] for one in findings(postroom)["connect", "post room"]] == ["ok"]
    save(Logins({"box": Login("box", "https://box.example:4281", "k", kind="human")}, "box"))

    monkeypatch.setenv("POSTROOM_URL", "box")
    monkeypatch.delenv("POSTROOM_STATE", raising=False)
    assert run(["doctor", "connect", "--json"]) == 0
    where, other = json.loads(capfd.readouterr().out)["findings"][:2]

    assert (where["state"], other["state"]) == ("ok", "note")
    assert "login box" in other["detail"]


@pytest.mark.requirement("connect-doctor-tells")
@pytest.mark.parametrize("broken", ["gone", "of another version"])
def test_doctor_looks_at_the_file_that_hooks_run(
    postroom: Run, standin: Standin, broken: str
) -> None:
    postroom("connect", "gemini", "--yes")
    places.hook().unlink()
    if broken == "of another version":
        places.hook().write_text("exit 0")

    assert [one["state"] for one in findings(postroom)["connect", "hook"]] == ["missing"]
    postroom("connect", "gemini", "--yes")
    assert [one["state"] for one in findings(postroom)["connect", "hook"]] == ["ok"]


@pytest.mark.requirement("connect-doctor-tells")
def test_doctor_reads_settings_that_forbid_hooks(
    postroom: Run, home: Path, tmp_path: Path, standin: Standin
) -> None:
    for client in ("claude", "codex", "gemini"):
        postroom("connect", client, "--yes")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "claude.json").write_text('{"allowManagedHooksOnly": true}')
    (tmp_path / "etc" / "codex.json").write_text("[features]\nhooks = false\n")
    (home / ".gemini" / "settings.json").write_text('{"hooksConfig": {"enabled": false}}')

    found = findings(postroom)

    for client in ("claude", "codex", "gemini"):
        assert "missing" in {one["state"] for one in found[client, "settings"]}, client


@pytest.mark.requirement("connect-doctor-tells")
def test_doctor_names_a_version_that_nobody_has_tried(
    postroom: Run, home: Path, standin: Standin
) -> None:
    modules = home / ".npm-global" / "lib" / "node_modules"
    script = "#!/usr/bin/env python3\n"
    own = package(modules, "@anthropic-ai/claude-code", program="claude", content=script)
    link(home / ".npm-global" / "bin" / "claude", own / "bin" / "claude")

    (program,) = findings(postroom)["claude", "program"]

    assert program["state"] == "note"
    assert "; tried: 2." in program["detail"]


# ── in a terminal ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("answer", ["y", "n"])
def test_in_a_terminal_the_person_is_asked(home: Path, tmp_path: Path, answer: str) -> None:
    with Terminal("connect", "gemini", "--state", str(tmp_path)) as terminal:
        terminal.read_until("Write this into")
        lines = [line for line in terminal.plain.splitlines() if line.startswith("  +")]
        assert max(map(len, lines)) <= 80
        assert "All of it: postroom connect gemini --print" in terminal.plain
        assert everything(home) == {}
        terminal.type(f"{answer}\n")
        assert terminal.ended() == (0 if answer == "y" else 130)

    assert (home / ".gemini").exists() is (answer == "y")
