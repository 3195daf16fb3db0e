from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from postroom.errors import InvalidInput
from postroom.sandbox import bubblewrap_program, never, policy
from postroom.sandbox.arguments import PATHS, HostView, options
from postroom.sandbox.bubblewrap import BubblewrapProvider
from postroom.sandbox.never import never_shown, real_name
from postroom.sandbox.port import Mount
from tests.sandbox.rig import Rig

pytestmark = pytest.mark.anyio


@pytest.fixture
def somebody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of who runs Postroom."""
    home = tmp_path / "somebody"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.mark.requirement("mend-logins-shown")
@pytest.mark.requirement("never-shown")
@pytest.mark.parametrize("name", [*never.ANYWHERE, *never.OF_HOMES])
def test_no_place_of_keys_and_logins_and_nothing_around_it_is_shown(
    somebody: Path, name: str
) -> None:
    place = somebody / name

    assert never_shown(place)
    assert never_shown(place / "below" / "it")
    for around in place.parents[: len(Path(name).parts)]:
        assert never_shown(around), around


@pytest.mark.requirement("never-shown")
@pytest.mark.parametrize(
    "name", ["/", "/proc", "/proc/1", "/proc/self/root", "/sys/fs", "/dev/shm", "/run/user", "/etc"]
)
def test_nothing_live_and_no_whole_system_folder_is_shown(name: str) -> None:
    assert never_shown(Path(name))


@pytest.mark.requirement("never-shown")
@pytest.mark.parametrize("part", ["state", "state/workers/abc/workspace", "state/keys", "."])
def test_nothing_of_the_post_room_is_shown(tmp_path: Path, part: str) -> None:
    (tmp_path / "state").mkdir()

    assert "Postroom's own" in never_shown(tmp_path / part, [tmp_path / "state"])


@pytest.mark.requirement("never-shown")
def test_the_homes_of_others_are_none_either(tmp_path: Path) -> None:
    (tmp_path / "jane" / ".ssh").mkdir(parents=True)

    assert "home" in never_shown(tmp_path / "jane")
    assert never_shown(tmp_path / "jane" / ".ssh")


def test_what_is_a_folder_like_any_other_is_shown(somebody: Path, tmp_path: Path) -> None:
    for folder in (
        *(somebody / "project", somebody / "project" / ".claude", somebody / ".local/share/claude"),
        *(somebody / ".claude/local/node_modules/x", somebody / ".nvm/versions/node/v22"),
        *(tmp_path / "project", Path("/usr/share"), Path("/srv/site"), Path("/etc/ssl/certs")),
    ):
        assert not never_shown(folder), folder


def test_a_branch_may_be_of_a_repository_that_is_around_them(somebody: Path) -> None:
    assert never_shown(somebody)
    assert not never_shown(somebody, holding=False)
    assert never_shown(somebody / ".password-store", holding=False)


@pytest.mark.requirement("never-shown")
def test_a_variable_that_puts_logins_elsewhere_is_followed(
    somebody: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    assert never_shown(tmp_path / "codex")
    assert never_shown(tmp_path / "config" / "gcloud" / "x")
    assert never_shown(tmp_path / "config")


@pytest.mark.requirement("never-shown")
def test_a_link_of_any_name_is_judged_by_where_it_leads(somebody: Path, tmp_path: Path) -> None:
    (somebody / ".ssh").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "docs").symlink_to(somebody / ".ssh")

    assert real_name(tmp_path / "project" / "docs") == somebody / ".ssh"
    assert never_shown(real_name(tmp_path / "project" / "docs"))
    with pytest.raises(InvalidInput, match="cannot look at"):
        real_name(tmp_path / "nothing")


@pytest.mark.requirement("never-shown")
@pytest.mark.parametrize("what", ["mount", "workspace"])
async def test_what_was_judged_and_swapped_for_a_link_is_not_shown(rig: Rig, what: str) -> None:
    folder, secret = rig.folder / "shared", rig.folder / "secret"
    for each in (folder, secret):
        each.mkdir()
    (secret / "key").write_text("secret")
    spec = replace(rig.draft(), argv=("/bin/true",))
    if what == "mount":
        spec = replace(spec, read_only=(Mount(folder, "/opt/shared", judged=True),))
    else:
        spec = replace(spec, workspace=folder, judged=True)
    policy.check(spec, PATHS)

    folder.rename(rig.folder / "away")
    folder.symlink_to(secret)

    with pytest.raises(InvalidInput, match="leads to another place"):
        await BubblewrapProvider().start(spec)


@pytest.mark.requirement("never-shown")
async def test_bubblewrap_shows_the_descriptor_that_was_judged(rig: Rig) -> None:
    folder = rig.folder / "shared"
    folder.mkdir()
    (folder / "plain").write_text("plain")
    (rig.folder / "file").write_text("a file")
    mounts = (
        Mount(folder, "/opt/shared", judged=True),
        Mount(folder, "/opt/again", judged=True),
        Mount(rig.folder / "file", "/opt/file", judged=True),
    )
    names = ["/opt/shared/plain", "/opt/again/plain", "/opt/file"]
    code = f"say(' '.join(open(n).read() for n in {names}))"

    said = await rig.ask(BubblewrapProvider(), code, read_only=mounts, judged=True)

    assert said == "plain plain a file"
    words = options(
        replace(rig.draft(), read_only=mounts, judged=True),
        HostView((), {}, False),
        dict.fromkeys(("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf"), 9),
        {"/opt/shared": 7, "/workspace": 8},
    )
    assert "--ro-bind-fd 7 /opt/shared" in " ".join(words)
    assert "--bind-fd 8 /workspace" in " ".join(words)


@pytest.mark.parametrize("said, binds", [("0.8.0", False), ("0.10.0", True), ("1.0", True)])
async def test_an_older_bwrap_is_known(tmp_path: Path, said: str, binds: bool) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\necho bubblewrap {said}\n")
    program.chmod(0o755)

    assert await bubblewrap_program.binds_descriptors(program) is binds
