from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.errors import InvalidInput, SandboxUnavailable
from postroom.sandbox import policy, python_home
from postroom.sandbox.arguments import PATHS, HostView, options
from postroom.sandbox.bubblewrap import BubblewrapProvider
from postroom.sandbox.output import OutputLog
from postroom.sandbox.port import Mount, SandboxSpec
from tests.sandbox.rig import Rig

pytestmark = pytest.mark.anyio


@pytest.fixture
def spec(rig: Rig):
    return replace(rig.draft(), argv=("/bin/true",))


async def test_a_spec_of_separate_folders_is_accepted(spec: SandboxSpec):
    policy.check(spec, PATHS)


@pytest.mark.requirement("never-shown")
@pytest.mark.parametrize(
    "field, value",
    [
        ("argv", ()),
        ("argv", ("/bin/true", "a\0--bind\0/\0/host")),
        ("env", {"A": "1\0--bind\0/\0/host"}),
        ("env", {"A=B": "1"}),
        ("env", {"": "1"}),
        ("workdir", "relative"),
        ("workdir", "/a\0b"),
        ("workspace", Path("/")),
        ("workspace", Path("/tmp")),
        ("workspace", Path.home()),
        ("workspace", Path("/nonexistent")),
        ("gateway_socket", Path("/nonexistent")),
        ("gateway_socket", Path("/etc/passwd")),
        ("secrets", {"/etc/passwd": b""}),
        ("secrets", {"/run/postroom/secrets/../x": b""}),
        ("secrets", {"/run/postroom/secrets/..": b""}),
        ("secrets", {"/run/postroom/secrets/": b""}),
        ("read_only", (Mount(Path("/"), "/opt/host"),)),
        ("read_only", (Mount(Path("/run"), "/opt/run"),)),
        ("read_only", (Mount(Path("/dev/shm"), "/opt/run"),)),
        ("read_only", (Mount(Path("/proc/self/fd"), "/opt/run"),)),
        ("read_only", (Mount(Path("/nonexistent"), "/opt/x"),)),
        ("read_only", (Mount(Path("/usr/bin"), "relative"),)),
        ("read_only", (Mount(Path("/usr/bin"), "/"),)),
        ("read_only", (Mount(Path("/usr/bin"), "/opt/../etc"),)),
        ("read_only", (Mount(Path("/usr/bin"), "/opt/\0x"),)),
        ("read_only", (Mount(Path("/usr/bin"), "/workspace/bin"),)),
        ("read_only", (Mount(Path("/usr/bin"), "/proc"),)),
        ("read_only", (Mount(Path("/usr/bin"), "/run/postroom"),)),
    ],
)
async def test_a_spec_that_would_open_the_wall_is_refused(
    spec: SandboxSpec, field: str, value: object
):
    with pytest.raises(InvalidInput):
        policy.check(replace(spec, **{field: value}), PATHS)


@pytest.mark.requirement("never-shown")
async def test_a_link_planted_in_the_workspace_does_not_choose_what_is_mounted(
    rig: Rig, spec: SandboxSpec
):
    (rig.workspace / "skills").symlink_to("/etc")

    with pytest.raises(InvalidInput):
        policy.check(
            replace(spec, read_only=(Mount(rig.workspace / "skills", "/opt/skills"),)), PATHS
        )


@pytest.mark.parametrize("inside", ["state", "stderr_log", "workspace"])
async def test_what_the_host_opens_later_may_not_lie_in_a_writable_folder(
    rig: Rig, spec: SandboxSpec, inside: str
):
    (rig.workspace / "inner").mkdir()
    fields = {
        "state": {"state": rig.workspace / "inner"},
        "stderr_log": {"stderr_log": rig.workspace / "inner" / "log"},
        "workspace": {"state": rig.workspace, "workspace": rig.workspace / "inner"},
    }[inside]

    with pytest.raises(InvalidInput):
        policy.check(replace(spec, **fields), PATHS)


async def test_the_gateway_socket_may_not_lie_in_the_workspace(rig: Rig, spec: SandboxSpec):
    with pytest.raises(InvalidInput):
        policy.check(replace(spec, workspace=rig.gateway.parent), PATHS)


async def test_all_namespaces_are_asked_for_and_every_host_folder_but_two_is_read_only(
    rig: Rig, spec: SandboxSpec
):
    state = rig.folder / "state"
    state.mkdir()
    files = dict.fromkeys(("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf"), 9)

    words = options(replace(spec, state=state), HostView((), {"/bin": "usr/bin"}, False), files)

    namespaces = {word for word in words if word.startswith("--unshare")}
    writable = [words[i + 1] for i, word in enumerate(words) if word == "--bind"]
    assert namespaces == {f"--unshare-{n}" for n in ("user", "ipc", "pid", "net", "uts", "cgroup")}
    assert writable == [str(rig.workspace), str(state)]
    assert not {"--share-net", "--dev-bind", "--bind-try", "--cap-add"} & set(words)


@pytest.mark.requirement("never-shown")
async def test_the_code_of_postroom_may_not_be_shared_writable(rig: Rig):
    with pytest.raises(InvalidInput, match="code of Postroom"):
        await rig.start(BubblewrapProvider(), "", workspace=python_home.PACKAGE.parent)


def test_of_the_checkout_only_the_package_is_shared():
    folders = python_home.folders()

    assert python_home.PACKAGE in folders or any(
        python_home.PACKAGE.is_relative_to(folder) for folder in (Path(sys.prefix), Path("/usr"))
    )
    assert python_home.PACKAGE.parent not in folders
    assert not {Path("/"), Path.home(), *policy.WHOLE_FOLDERS} & set(folders)


def test_python_installed_right_in_the_home_folder_is_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))

    with pytest.raises(SandboxUnavailable, match="as a whole"):
        python_home.folders()


async def test_the_log_is_private_to_its_owner(rig: Rig):
    OutputLog(rig.log).close()

    assert rig.log.stat().st_mode & 0o777 == 0o600
