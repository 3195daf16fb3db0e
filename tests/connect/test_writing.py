"""Files of clients on disk: all of a client's files or none, bytes that come back, and receipts by which they do."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from postroom.connect import files, json_text, places, writing
from postroom.connect.clients import CLIENTS, base
from postroom.connect.clients.base import Installed
from postroom.connect.edits import OwnFile
from postroom.errors import Conflict, EnvironmentFault, InvalidInput, PostroomError, StateUnwritable

HOOKS = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}'
CONFIG = 'model = "m"  # mine\r\n\r\n[tui]\r\ntheme = "dark"'


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of Codex with hooks and settings of its person's."""
    home = tmp_path / "it's a home" / ".codex"
    home.mkdir(parents=True)
    (home / "hooks.json").write_text(HOOKS)
    (home / "config.toml").write_text(CONFIG, newline="")
    return home


def parts(home: Path, client: str = "codex") -> list[writing.Part]:
    return CLIENTS[client].parts(home, Installed(places.hook()))


def connect(home: Path, client: str = "codex") -> writing.Receipt:
    return writing.write(parts(home, client), writing.receipt_of(client, home))


def disconnect(home: Path, client: str = "codex") -> list[writing.Undone]:
    return writing.undo(parts(home, client), writing.receipt_of(client, home))


def tree(folder: Path) -> dict[str, bytes | str]:
    """Everything in a folder: links as their targets, files as their bytes."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else "folder"
        for path in folder.rglob("*")
    }


@pytest.mark.requirement("connect-bytes-come-back")
@pytest.mark.parametrize("client", list(CLIENTS))
def test_a_home_that_only_we_have_changed_is_as_it_was_before(home: Path, client: str) -> None:
    before = tree(home)

    connect(home, client)
    assert tree(home) != before
    assert all(part.edit.there(part.path.read_bytes()) for part in parts(home, client))

    assert disconnect(home, client)
    assert tree(home) == before
    assert writing.receipts() == []
    assert disconnect(home, client) == []


@pytest.mark.parametrize("client", list(CLIENTS))
def test_a_home_that_there_was_not_is_gone_again(tmp_path: Path, client: str) -> None:
    home = tmp_path / "new" / "home"

    connect(home, client)
    disconnect(home, client)

    assert not (tmp_path / "new").exists()


def test_connecting_again_changes_nothing_and_keeps_what_was_there_before(home: Path) -> None:
    before = tree(home)
    first = connect(home)
    between = tree(home)

    assert writing.plan(parts(home), writing.receipt_of("codex", home)) == []
    assert connect(home) == first

    assert tree(home) == between
    disconnect(home)
    assert tree(home) == before


def test_two_at_once_leave_one_receipt_with_the_bytes_of_before(home: Path) -> None:
    before = tree(home)

    with ThreadPoolExecutor(8) as several:
        for done in [several.submit(connect, home) for _ in range(8)]:
            done.result()

    said = json.loads((home / "hooks.json").read_text())["hooks"]
    assert len(said["Stop"]) == 2
    disconnect(home)
    assert tree(home) == before


def test_another_version_takes_the_place_of_the_one_before(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(home)
    connect(home)
    monkeypatch.setattr(base, "events_of", lambda _: ["Stop", "PermissionRequest"])

    connect(home)
    said = json.loads((home / "hooks.json").read_text())["hooks"]
    assert {event: len(groups) for event, groups in said.items()} == {
        "Stop": 2,
        "PermissionRequest": 1,
    }

    disconnect(home)
    assert tree(home) == before


@pytest.mark.requirement("connect-bytes-come-back")
def test_what_codex_adds_while_it_runs_stays(home: Path) -> None:
    connect(home)
    trust = f'\n[hooks.state."{home}/hooks.json:stop:1:0"]\ntrusted_hash = "sha256:1"\n'
    with (home / "config.toml").open("a") as file:
        file.write(trust)

    done = {undone.path.name: undone.said for undone in disconnect(home)}

    assert done["hooks.json"] == "as it was before"
    assert done["config.toml"].startswith("only what Postroom wrote is cut")
    left = (home / "config.toml").read_bytes().decode()
    assert left == CONFIG + "\r\n" + trust
    assert len(CLIENTS["codex"].adds(home)) == 1


def test_a_file_of_our_own_that_somebody_changed_stays_and_is_named(home: Path) -> None:
    connect(home, "claude")
    plugin = home / "skills" / "postroom" / "hooks" / "hooks.json"
    plugin.write_text("{}")

    left = [undone for undone in disconnect(home, "claude") if undone.left]

    assert [undone.path for undone in left] == [plugin]
    assert plugin.read_text() == "{}"
    plugin.unlink()
    disconnect(home, "claude")
    assert not (home / "skills").exists()
    assert writing.receipts() == []


def test_what_others_put_into_our_folder_stays(home: Path) -> None:
    connect(home, "claude")
    (home / "skills" / "postroom" / "SKILL.md").write_text("mine")

    disconnect(home, "claude")

    assert tree(home / "skills") == {"postroom": "folder", "postroom/SKILL.md": b"mine"}
    assert writing.receipts() == []


def test_a_folder_of_that_name_that_is_not_ours_is_refused(home: Path) -> None:
    manifest = home / "skills" / "postroom" / ".claude-plugin" / "plugin.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"name": "postroom", "author": "somebody"}')
    before = tree(home)

    with pytest.raises(Conflict, match="plugin"):
        connect(home, "claude")

    assert tree(home) == before


@pytest.mark.requirement("connect-bytes-come-back")
def test_a_server_of_that_name_that_is_not_ours_is_refused_and_the_hooks_go_back(
    home: Path,
) -> None:
    (home / "config.toml").write_text('[mcp_servers.postroom]\ncommand = "mine"\n')
    before = tree(home)

    with pytest.raises(Conflict, match=r"config\.toml"):
        connect(home)

    assert tree(home) == before
    assert writing.receipts() == []
    assert disconnect(home) == []
    assert tree(home) == before


@pytest.mark.parametrize(
    "name,content",
    [("config.toml", b"x = "), ("config.toml", b"\xff"), ("hooks.json", b"{"), ("hooks.json", b"")],
)
def test_a_file_that_does_not_parse_is_refused_and_nothing_is_written(
    home: Path, name: str, content: bytes
) -> None:
    (home / name).write_bytes(content)
    before = tree(home)

    with pytest.raises(InvalidInput, match=name):
        writing.plan(parts(home), writing.receipt_of("codex", home))
    with pytest.raises(InvalidInput, match=name):
        connect(home)

    assert tree(home) == before


def test_a_link_stays_a_link_and_its_target_keeps_mode_and_bytes(
    home: Path, tmp_path: Path
) -> None:
    dots = tmp_path / "dots"
    dots.mkdir()
    (home / "config.toml").rename(dots / "codex.toml")
    (dots / "codex.toml").chmod(0o640)
    (home / "config.toml").symlink_to(dots / "codex.toml")
    before = tree(home), tree(dots)

    connect(home)
    assert (home / "config.toml").is_symlink()
    assert b"mcp_servers" in (dots / "codex.toml").read_bytes()
    assert stat.S_IMODE((dots / "codex.toml").stat().st_mode) == 0o640

    disconnect(home)
    assert (tree(home), tree(dots)) == before
    assert stat.S_IMODE((dots / "codex.toml").stat().st_mode) == 0o640


def test_a_link_that_leads_to_no_file_leads_to_none_again(home: Path, tmp_path: Path) -> None:
    (home / "hooks.json").unlink()
    (home / "hooks.json").symlink_to(tmp_path / "to come.json")

    connect(home)
    assert (tmp_path / "to come.json").is_file()

    disconnect(home)
    assert (home / "hooks.json").is_symlink()
    assert not (tmp_path / "to come.json").exists()


@pytest.mark.parametrize("make", [lambda path: path.symlink_to(path), Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused(home: Path, make: Callable[[Path], None]) -> None:
    (home / "hooks.json").unlink()
    make(home / "hooks.json")

    with pytest.raises(PostroomError):
        connect(home)


def test_a_file_under_two_names_is_refused(home: Path) -> None:
    (home / "same").hardlink_to(home / "config.toml")
    before = tree(home)

    with pytest.raises(Conflict, match="2 names"):
        connect(home)

    assert tree(home) == before


def test_a_client_that_writes_at_the_same_moment_loses_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = home / "config.toml"
    before = config.read_bytes()
    made = files.tempfile.mkstemp
    times = iter(range(2))

    def client_first(*, dir: Path, prefix: str) -> tuple[int, str]:  # noqa: A002
        if ".config.toml." in prefix and next(times, None) is not None:
            config.write_bytes(config.read_bytes() + b"\n# written by the client")
        return made(dir=dir, prefix=prefix)

    monkeypatch.setattr(files.tempfile, "mkstemp", client_first)
    connect(home)

    theirs = before + b"\n# written by the client" * 2
    assert config.read_bytes().startswith(theirs)
    assert b"mcp_servers" in config.read_bytes()
    disconnect(home)
    assert config.read_bytes() == theirs


def test_a_client_that_never_stops_writing_is_told_of(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = home / "config.toml"
    made = files.tempfile.mkstemp

    def client_first(*, dir: Path, prefix: str) -> tuple[int, str]:  # noqa: A002
        if ".config.toml." in prefix:
            config.write_bytes(config.read_bytes() + b"\n# again")
        return made(dir=dir, prefix=prefix)

    monkeypatch.setattr(files.tempfile, "mkstemp", client_first)
    with pytest.raises(Conflict, match="keeps writing"):
        connect(home)

    assert (home / "hooks.json").read_text() == HOOKS
    assert b"mcp_servers" not in config.read_bytes()


def test_a_write_that_fails_takes_the_others_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(home)
    made = files.tempfile.mkstemp

    def full(*, dir: Path, prefix: str) -> tuple[int, str]:  # noqa: A002
        if ".config.toml." in prefix:
            raise OSError(28, "No space left on device")
        return made(dir=dir, prefix=prefix)

    monkeypatch.setattr(files.tempfile, "mkstemp", full)
    with pytest.raises(StateUnwritable, match="No space left"):
        connect(home)

    assert tree(home) == before
    assert writing.receipts() == []


def test_a_receipt_is_on_disk_before_its_file_is_changed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(home)

    def killed(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "_replaced", killed)
    with pytest.raises(KeyboardInterrupt):
        connect(home)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_DATA_HOME", str(places.folder().parents[1]))

    assert tree(home) == before
    disconnect(home)
    assert tree(home) == before


def test_a_home_of_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places.folder()
    uid = os.geteuid()
    monkeypatch.setattr(files.os, "geteuid", lambda: uid + 1)

    with pytest.raises(EnvironmentFault, match="another user"):
        files.check_folder(home)
    with pytest.raises(EnvironmentFault, match="another user"):
        files.check_folder(home / "not" / "there")


def test_receipts_are_private_and_another_form_is_refused(home: Path) -> None:
    receipt = connect(home)
    assert stat.S_IMODE(receipt.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(receipt.path.parent.stat().st_mode) == 0o700

    receipt.path.write_text('{"client": 1}')
    with pytest.raises(EnvironmentFault, match="is not what"):
        writing.receipts()


def test_without_a_receipt_only_what_is_marked_is_cut(home: Path) -> None:
    receipt = connect(home)
    receipt.path.unlink()

    disconnect(home)

    assert json.loads((home / "hooks.json").read_text()) == json.loads(HOOKS)
    assert (home / "config.toml").read_bytes().decode() == CONFIG + "\r\n"


@pytest.mark.requirement("connect-bytes-come-back")
def test_no_key_and_nothing_that_changes_over_versions_is_in_a_hook(home: Path) -> None:
    for client in CLIENTS:
        for part in parts(home, client):
            text = part.edit.put(None).decode()
            assert "a2a_" not in text.replace("a2a_whoami", "")
            assert "python" not in text
            if isinstance(part.edit, OwnFile) and part.path.suffix == ".js":
                continue
            assert str(places.hook()) in text or part.path.name == "plugin.json"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_hook_runs_wherever_the_file_is_and_does_nothing_once_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / 'it\'s $HOME; `x` "y" ü'))
    places.hook().write_text('echo "$1 $2"')
    commands = {
        (client, event): handler["command"]
        for client in ("claude", "codex", "gemini")
        for part in parts(tmp_path, client)
        if part.path.name == "hooks.json"
        for event, handler in json_text.handlers(json.loads(part.edit.put(None)))
    }

    def said() -> list[str]:
        ran = [
            subprocess.run([shell, "-c", words], capture_output=True, text=True, check=True)
            for words in commands.values()
        ]
        return [done.stdout + done.stderr for done in ran]

    wanted = [
        f"{client} {'wait' if words.endswith('wait; exit 0') else event}\n"
        for (client, event), words in commands.items()
    ]
    assert said() == wanted
    places.hook().unlink()
    assert said() == [""] * len(wanted)
