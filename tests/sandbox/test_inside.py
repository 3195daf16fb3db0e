"""What a program sees and may do behind the wall of bubblewrap."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import postroom
from postroom.errors import SandboxUnavailable
from postroom.sandbox.arguments import MEMORY_FOLDERS, PATHS
from postroom.sandbox.bubblewrap import BubblewrapProvider
from postroom.sandbox.port import Limits, Mount
from postroom.sandbox.python_home import PACKAGES
from tests.sandbox.rig import Rig

pytestmark = pytest.mark.anyio

PACKAGE = str(Path(postroom.__path__[0]))
SECRET = "hush-5f0c1d"
SECRET_PATH = f"{PATHS.secrets}/token"


def _host_processes_that_show(needle: str) -> list[str]:
    found = []
    for name in ("cmdline", "environ"):
        for path in Path("/proc").glob(f"[0-9]*/{name}"):
            try:
                if needle.encode() in path.read_bytes():
                    found.append(str(path))
            except OSError:
                continue
    return found


@pytest.mark.requirement("wall-sidecar-closed")
async def test_a_secret_is_in_no_command_line_or_environment_of_the_host(rig: Rig):
    handle = await rig.start(
        BubblewrapProvider(), "say('up'); hold()", secrets={SECRET_PATH: SECRET.encode()}
    )
    try:
        assert await rig.hear() == "up"

        assert _host_processes_that_show(SECRET) == []
    finally:
        await handle.stop(0)


@pytest.mark.requirement("wall-sidecar-closed")
async def test_a_secret_is_not_left_in_the_memory_of_process_1(rig: Rig):
    # Process 1 is bubblewrap, which the program may read: what bubblewrap copied would lie on its stack.
    code = f"""
wanted = bytes(reversed({SECRET[::-1].encode()!r}))
memory, found, read = open("/proc/1/mem", "rb"), [], 0
for line in open("/proc/1/maps"):
    area, rights, *_, name = line.split()
    start, end = (int(word, 16) for word in area.split("-"))
    if "r" not in rights or name in ("[vvar]", "[vvar_vclock]", "[vsyscall]"):
        continue
    memory.seek(start)
    content = memory.read(end - start)
    read += len(content)
    if wanted in content:
        found.append(name)
say([found, read > 0])
hold()
"""
    found = await rig.ask(BubblewrapProvider(), code, secrets={SECRET_PATH: SECRET.encode()})

    assert found == [[], True]


@pytest.mark.requirement("wall-sidecar-closed")
async def test_a_secret_is_in_no_procfs_file_inside(rig: Rig):
    code = f"""
os.unlink({SECRET_PATH!r})
import glob
found = []
for path in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/1/fd/*"):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if bytes(reversed({SECRET[::-1].encode()!r})) in os.read(fd, 1 << 20):
            found.append(path)
        os.close(fd)
    except OSError:
        pass
say(found)
"""
    found = await rig.ask(BubblewrapProvider(), code, secrets={SECRET_PATH: SECRET.encode()})

    assert found == []


async def test_a_secret_is_a_private_file_that_the_program_can_read_and_unlink(rig: Rig):
    code = f"""
path = {SECRET_PATH!r}
mode, text = os.stat(path).st_mode & 0o777, open(path).read()
os.unlink(path)
say([mode, text, os.listdir(os.path.dirname(path))])
"""
    said = await rig.ask(BubblewrapProvider(), code, secrets={SECRET_PATH: SECRET.encode()})

    assert said == [0o600, SECRET, []]


@pytest.mark.requirement("wall-sidecar-closed")
async def test_the_environment_is_what_the_spec_says_and_nothing_else(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOST_SECRET", SECRET)
    code = "say([dict(os.environ), open('/proc/1/environ').read()])"

    environment, of_first_process = await rig.ask(BubblewrapProvider(), code, env={"GIVEN": "1"})

    environment.pop("LC_CTYPE", None)  # Python sets it itself
    assert environment == {"GIVEN": "1", "PWD": "/workspace"}
    assert of_first_process == ""


@pytest.mark.requirement("wall-sidecar-closed")
async def test_what_is_written_to_the_workspace_and_the_state_folder_is_on_the_host(rig: Rig):
    state = rig.folder / "state"
    state.mkdir()
    code = """
open("/workspace/a", "w").write("w")
open("/var/lib/postroom/b", "w").write("s")
say("written")
"""
    await rig.ask(BubblewrapProvider(), code, state=state)

    assert (rig.workspace / "a").read_text() == "w"
    assert (state / "b").read_text() == "s"


@pytest.mark.requirement("wall-sidecar-closed")
@pytest.mark.parametrize(
    "folder",
    [
        "/",
        "/etc",
        "/usr",
        "/usr/bin",
        "/dev",
        "/home",
        "/run",
        "/var",
        "/opt/shared",
        sys.prefix,
        PACKAGE,
    ],
)
async def test_nothing_outside_the_writable_folders_can_be_written(rig: Rig, folder: str):
    shared = rig.folder / "shared"
    shared.mkdir()
    code = f"""
try:
    open(os.path.join({folder!r}, "planted"), "w")
except OSError as error:
    say(type(error).__name__ + ":" + os.strerror(error.errno))
else:
    say("written")
"""
    said = await rig.ask(BubblewrapProvider(), code, read_only=(Mount(shared, "/opt/shared"),))

    assert said in {
        "OSError:Read-only file system",
        "PermissionError:Permission denied",
        "FileNotFoundError:No such file or directory",
    }


async def test_a_read_only_mount_can_be_read_at_its_target(rig: Rig):
    (rig.folder / "notes").write_text("read me")

    said = await rig.ask(
        BubblewrapProvider(),
        "say(open('/opt/notes').read())",
        read_only=(Mount(rig.folder / "notes", "/opt/notes"),),
    )

    assert said == "read me"


@pytest.mark.requirement("sandbox-kernel-files-closed")
async def test_no_setting_of_the_kernel_can_be_opened_for_writing(rig: Rig):
    code = """
opened = []
for folder, folders, names in os.walk("/proc"):
    # A process may change itself; the pressure files take a watch of one's own and change nothing.
    if folder == "/proc":
        aside = {"self", "thread-self", "pressure"}
        folders[:] = [name for name in folders if not name.isdigit() and name not in aside]
    for name in names:
        path = os.path.join(folder, name)
        try:
            os.close(os.open(path, os.O_WRONLY))
        except OSError:
            continue
        opened.append(path)
say([len(os.listdir("/proc/sys")) > 0, opened])
"""
    present, opened = await rig.ask(BubblewrapProvider(), code)

    # A plain user's own namespace has settings of its own, which concern nobody outside.
    own = ("/proc/sys/user/", "/proc/sys/net/", "/proc/sys/kernel/", "/proc/sys/fs/mqueue/")
    assert present
    assert [p for p in opened if os.geteuid() == 0 or not p.startswith(own)] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="concerns a Postroom that runs as root")
async def test_as_root_no_further_user_namespace_can_be_made(rig: Rig):
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
say(libc.unshare(0x10000000))
"""
    assert await rig.ask(BubblewrapProvider(), code) == -1


async def test_the_names_of_the_hosts_users_and_its_resolver_are_not_shown(rig: Rig):
    code = "say([open('/etc/passwd').read().count(chr(10)), os.path.exists('/etc/resolv.conf')])"

    assert await rig.ask(BubblewrapProvider(), code) == [1, False]


async def test_the_program_has_no_capability_and_cannot_gain_any(rig: Rig):
    code = """
fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
say([fields[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp")])
"""
    zero = "0" * 16

    assert await rig.ask(BubblewrapProvider(), code) == [zero, zero, zero, "1", "2"]


async def test_the_program_is_an_ordinary_user_in_a_session_of_its_own(rig: Rig):
    code = "say([os.getuid(), os.getgid(), socket.gethostname(), os.getsid(0) == os.getsid(1)])"

    uid, gid, host, _ = await rig.ask(BubblewrapProvider(), code)

    assert (uid, gid, host) == (1000, 1000, "worker")


async def test_no_descriptor_of_the_host_is_left_open(rig: Rig):
    code = """
found = []
for name in os.listdir("/proc/self/fd"):
    try:
        found.append(os.readlink("/proc/self/fd/" + name).split(":")[0])
    except OSError:
        pass  # the one that listed the folder
say(sorted(found))
"""
    said = await rig.ask(BubblewrapProvider(), code)

    assert said == ["/dev/null", "pipe", "pipe", "socket"]


async def test_the_python_that_runs_postroom_can_import_it_inside(rig: Rig):
    argv = (
        sys.executable,
        "-c",
        "import postroom.errors; print(postroom.errors.PostroomError.code)",
    )
    env = {
        "PYTHONPATH": os.pathsep.join(str(package.parent) for package in PACKAGES),
        "PATH": "/usr/bin:/bin",
    }

    handle = await rig.start(BubblewrapProvider(), "", argv=argv, env=env)

    assert (await handle.wait()).code == 0
    assert rig.log.read_text().strip() == "error"


async def test_a_memory_limit_stops_a_program_that_wants_more(rig: Rig):
    code = """
try:
    bytearray(512 << 20)
except MemoryError:
    say("refused")
else:
    say("given")
"""
    assert await rig.ask(BubblewrapProvider(), code, limits=Limits(memory=128 << 20)) == "refused"


async def test_a_program_that_does_not_exist_is_an_error_and_no_exit_status(rig: Rig):
    handle = await rig.start(BubblewrapProvider(), "", argv=("/nonexistent",))

    with pytest.raises(SandboxUnavailable, match="nonexistent"):
        await handle.wait()


@pytest.mark.parametrize("folder", MEMORY_FOLDERS)
async def test_a_folder_in_memory_is_writable_and_bounded(rig: Rig, folder: str):
    code = f"""
open({folder!r} + "/a", "w").write("a")
found = os.statvfs({folder!r})
say(found.f_blocks * found.f_frsize)
"""
    assert await rig.ask(BubblewrapProvider(), code) == MEMORY_FOLDERS[folder][1]


async def test_output_of_the_program_is_appended_to_the_log(rig: Rig):
    rig.log.write_text("before\n")
    argv = ("/bin/sh", "-c", "echo out; echo err >&2")

    await (await rig.start(BubblewrapProvider(), "", argv=argv)).wait()

    assert rig.log.read_text() == "before\nout\nerr\n"
