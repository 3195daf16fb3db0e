"""The same attacks from inside every wall, and without one, where they must get through: else they would prove nothing.

What a wall states as its hole is attacked in its own tests.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest

from postroom.sandbox import kernel, plain
from postroom.sandbox.port import SandboxProvider
from tests.sandbox.providers import ALL, LANDLOCK, NETNS, WALLS
from tests.sandbox.rig import Rig

# Numbers of calls that the C library has no name for.
READ_MEMORY, SET_LIMIT, KEYCTL = (
    (310, 302, 250) if os.uname().machine == "x86_64" else (270, 261, 219)
)

pytestmark = pytest.mark.anyio
walls = pytest.mark.parametrize("provider", WALLS)
attacked = pytest.mark.parametrize("provider", ALL)

# Says which of the attacks, a list of (name, function), got through.
ATTACK = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
def through(attacks):
    found = []
    for name, attack in attacks:
        try:
            attack()
        except OSError:
            continue
        found.append(name)
    say(found)
"""


@pytest.mark.requirement("sandbox-canary-unreachable")
@attacked
async def test_no_way_to_the_hosts_network_is_open(rig: Rig, provider: SandboxProvider):
    with socket.create_server(("127.0.0.1", 0)) as host:
        address = host.getsockname()
        code = f"""{ATTACK}
where = {address!r}
def tcp(protocol=0, family=socket.AF_INET, where=where):
    with socket.socket(family, socket.SOCK_STREAM, protocol) as sock:
        sock.settimeout(1)
        sock.connect(where)
def fastopen():
    with socket.socket() as sock:
        sock.sendto(b"x", 0x20000000, where)
def sendmsg_fastopen():
    with socket.socket() as sock:
        sock.sendmsg([b"x"], [], 0x20000000, where)
def make(*kind):
    return lambda: socket.socket(*kind).close()
through([
    ("tcp", tcp), ("mptcp", lambda: tcp(262)), ("sctp", lambda: tcp(132)),
    ("mapped", lambda: tcp(family=socket.AF_INET6, where=("::ffff:127.0.0.1", where[1]))),
    ("fastopen", fastopen), ("sendmsg", sendmsg_fastopen),
    ("raw", make(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)),
    ("packet", make(socket.AF_PACKET, socket.SOCK_RAW)), ("vsock", make(40, socket.SOCK_STREAM)),
    ("crypto", make(38, socket.SOCK_SEQPACKET)), ("smc", make(43, socket.SOCK_STREAM)),
])
"""
        _judge(provider, await rig.ask(provider, code), {"tcp", "mapped", "sendmsg"})
        host.setblocking(False)
        if provider.name == plain.NAME:
            return
        with pytest.raises(BlockingIOError):
            host.accept()


def _judge(provider: SandboxProvider, through: list[str], open_without: set[str]) -> None:
    if provider.name == plain.NAME:
        assert open_without <= set(through)
    else:
        assert through == []


@pytest.mark.requirement("sandbox-canary-unreachable")
@attacked
async def test_the_processes_of_the_host_cannot_be_signalled_read_or_limited(
    rig: Rig, provider: SandboxProvider
):
    memory = ctypes.create_string_buffer(b"secret", 64)
    address = ctypes.addressof(memory)
    code = f"""{ATTACK}
host, parent = {os.getpid()}, os.getppid()
def opens(path):
    return lambda: os.close(os.open(path, os.O_RDONLY))
def lists(path):
    def attack():
        for name in os.listdir(path):
            os.readlink(path + "/" + name)
    return attack
def pidfd():
    fd = os.pidfd_open(host)
    call(438, fd, 0, 0)  # pidfd_getfd
def read():
    memory = ctypes.create_string_buffer(8)
    vector = struct.pack("QQ", ctypes.addressof(memory), 8)
    call({READ_MEMORY}, host, vector, 1, struct.pack("QQ", {address}, 8), 1, 0)
attacks = [
    ("signal", lambda: os.kill(host, signal.SIGCONT)),
    ("environ", opens(f"/proc/{{host}}/environ")), ("mem", opens(f"/proc/{{host}}/mem")),
    ("fds", lists(f"/proc/{{host}}/fd")), ("root", lambda: os.listdir(f"/proc/{{host}}/root")),
    ("pidfd", pidfd), ("read", read),
    ("limit", lambda: call({SET_LIMIT}, host, 7, 0, struct.pack("QQ", 0, 0))),
]
if parent > 1:
    attacks += [("parent", opens(f"/proc/{{parent}}/environ")), ("kill", lambda: os.kill(parent, 0))]
through(attacks)
"""
    found = await rig.ask(provider, code)

    _judge(provider, found, {"signal", "environ", "fds", "limit", "parent", "kill"})


@pytest.mark.requirement("sandbox-canary-unreachable")
@attacked
async def test_what_lies_beside_the_workspace_can_be_neither_read_nor_changed(
    rig: Rig, provider: SandboxProvider
):
    private = rig.folder / "private"
    private.write_text("hush")
    (rig.workspace / "link").symlink_to(private)
    code = f"""{ATTACK}
private, folder = {str(private)!r}, {str(rig.folder)!r}
def writes(path):
    return lambda: open(path, "a").close()
elsewhere = [
    ("usr", writes("/usr/planted")), ("python", writes({sys.prefix!r} + "/planted")),
    ("shadow", lambda: open("/etc/shadow").close()), ("core", writes("/proc/sys/kernel/core_pattern")),
    ("terminal", lambda: open("/dev/tty").close()),
] if {provider.name != plain.NAME} else []  # the machine of the tests is not to be changed
through([
    ("read", lambda: open(private).close()), ("link", lambda: open("link").close()), ("append", writes(private)),
    ("truncate", lambda: os.truncate(private, 0)), ("make", writes(folder + "/new")),
    ("list", lambda: os.listdir(folder)), ("remove", lambda: os.unlink(private)),
    ("rename", lambda: os.rename(private, "mine")), ("hardlink", lambda: os.link(private, "mine")),
    ("log", writes({str(rig.log)!r})), *elsewhere,
])
"""
    found = await rig.ask(provider, code)

    _judge(provider, found, {"read", "link", "append", "make", "list", "log"})
    if provider.name != plain.NAME:
        assert private.read_text() == "hush"


@pytest.mark.requirement("sandbox-canary-unreachable")
@walls
async def test_no_shared_memory_keyring_or_ring_of_the_host_is_open(
    rig: Rig, provider: SandboxProvider
):
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(0, 4096, 0o1600)  # IPC_PRIVATE, made by us
    assert segment >= 0
    try:
        own_ipc = provider.name != "landlock"  # then a queue is its own, which it may make
        code = f"""{ATTACK}
def attach():
    libc.shmat.restype = ctypes.c_void_p
    if libc.shmat({segment}, None, 0) == ctypes.c_void_p(-1).value:
        raise OSError
def queue():
    if libc.mq_open(b"/postroom-canary", os.O_CREAT | os.O_RDWR, 0o600, None) < 0:
        raise OSError
def keys():
    call({KEYCTL}, 0, -3, 1)
through([("shared memory", attach), ("queue", queue)][:{1 if own_ipc else 2}]
        + [("keys", keys), ("io_uring", lambda: call(425, 1, b"0" * 120))])
"""
        assert await rig.ask(provider, code) == []
    finally:
        libc.shmctl(segment, 0, None)


@pytest.mark.requirement("sandbox-kernel-files-closed")
@attacked
async def test_what_the_kernel_shows_to_root_alone_cannot_be_read(
    rig: Rig, provider: SandboxProvider
):
    """Nor what container runtimes hide from everybody, where a sandbox has a procfs of its own."""
    hidden = [] if provider.name == "landlock" and os.geteuid() else list(kernel.HIDDEN)
    code = f"""{ATTACK}
import stat
def read(path):
    def attack():
        if stat.S_ISDIR(os.stat(path).st_mode):
            if not os.listdir(path):
                raise OSError
            return
        # Not blocking: the log of the kernel has nothing more to give when somebody has read it. That is None.
        with open(path, "rb", opener=lambda name, how: os.open(name, how | os.O_NONBLOCK)) as file:
            if file.read(8) == b"":
                raise OSError
    return attack
attacks = [("thread", read("/proc/2/maps"))] if os.path.exists("/proc/2/stat") and {provider.name == "landlock"} else []
closed = [name for name in os.listdir("/proc") if not name.isdigit() and not os.lstat("/proc/" + name).st_mode & 4]
through(attacks + [(name, read("/proc/" + name)) for name in sorted({{*closed, *{hidden!r}}})])
"""
    found = await rig.ask(provider, code)

    _judge(provider, found, {"slabinfo", "vmallocinfo"} if os.geteuid() == 0 else set())


@pytest.mark.requirement("sandbox-kernel-files-closed")
@attacked
async def test_no_namespace_can_be_made_or_entered(rig: Rig, provider: SandboxProvider):
    clone, unshare = (56, 272) if os.uname().machine == "x86_64" else (220, 97)
    code = f"""{ATTACK}
def in_child(attack):
    def forked():
        child = os.fork()
        if child == 0:
            try:
                attack()
            except OSError:
                os._exit(1)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            raise OSError
    return forked
def made(number, *arguments):
    def attack():
        child = libc.syscall(number, *arguments)
        if child < 0:
            raise OSError
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    return in_child(attack)
def enter():
    descriptor = os.open("/proc/self/ns/user", os.O_RDONLY)
    call({308 if clone == 56 else 268}, descriptor, 0)
user, all = 0x10000000, 0x7E020000
def become():
    call({117 if os.uname().machine == "x86_64" else 147}, 12345, 12345, 12345)  # setresuid
new = struct.pack("11Q", user, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
through([
    ("unshare", in_child(lambda: call({unshare}, user))),
    ("unshare all", in_child(lambda: call({unshare}, all))),
    ("clone", made({clone}, user | signal.SIGCHLD, 0, 0, 0, 0)),
    ("clone3", made(435, new, len(new))), ("setns", in_child(enter)),
    ("user", in_child(become)),
])
"""
    found = await rig.ask(provider, code)

    if os.geteuid() == 0:
        _judge(provider, found, {"unshare", "clone", "clone3"})
    elif provider.name != plain.NAME:
        assert found == []


PROGRAMS = {
    "bash": "bash -c '(echo a; echo b) | while read x; do :; done & wait; echo $(cat <(echo hello))'",
    "git": "git init -q r && git -C r -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git -C r gc -q",
    "node": "node -e 'const c = require(`child_process`); new (require(`worker_threads`).Worker)(`1`, {eval: true});"
    " c.execFileSync(`true`)'",
}


@pytest.mark.requirement("sandbox-kernel-files-closed")
@walls
async def test_threads_and_the_common_programs_run_as_they_did(rig: Rig, provider: SandboxProvider):
    programs = {name: line for name, line in PROGRAMS.items() if shutil.which(name)}
    code = f"""
import concurrent.futures, subprocess
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    assert sum(pool.map(lambda n: n, range(100))) == 4950
failed = {{}}
for name, line in {programs!r}.items():
    done = subprocess.run(["/bin/bash", "-c", line], capture_output=True, text=True)
    if done.returncode:
        failed[name] = done.stderr
say(failed)
"""
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": provider.paths(rig.draft()).home,
        # Landlock refuses these files of /etc, and the programs do not take that for "there is none".
        "GIT_CONFIG_NOSYSTEM": "1",
        "OPENSSL_CONF": "/dev/null",
    }

    assert await rig.ask(provider, code, env=env) == {}


@walls
async def test_the_workspace_home_and_temporary_files_are_for_the_program(
    rig: Rig, provider: SandboxProvider
):
    paths = provider.paths(rig.draft())
    code = f"""
import tempfile
for folder in {[paths.workspace, paths.home, paths.tmp]!r}:
    with open(folder + "/a", "w") as file:
        file.write("a")
    os.mkdir(folder + "/sub")
    os.rename(folder + "/a", folder + "/sub/b")
    with open(folder + "/tool", "w") as file:
        file.write("#!/bin/sh\\nexit 7\\n")
    os.chmod(folder + "/tool", 0o755)
    code = os.waitstatus_to_exitcode(os.system(folder + "/tool"))
    said = (open(folder + "/sub/b").read(), code)
say(said)
"""
    assert await rig.ask(provider, code) == ["a", 7]
    assert not Path(paths.tmp, "sub").exists()


@walls
async def test_the_program_has_no_privileges_and_can_gain_none(rig: Rig, provider: SandboxProvider):
    code = """
fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
names = ("CapInh", "CapEff", "CapPrm", "CapAmb")
say([fields[name].strip() for name in names] + [fields["NoNewPrivs"].strip(), fields["Seccomp"].strip()])
"""
    zero = "0" * 16

    assert await rig.ask(provider, code) == [*[zero] * 4, "1", "2"]


@pytest.mark.requirement("wall-sidecar-closed")
@walls
async def test_a_secret_is_read_once_and_on_no_disk_and_in_no_command_line(
    rig: Rig, provider: SandboxProvider
):
    secret = "hush-77a1c2"
    path = provider.paths(rig.draft()).secrets + "/token"
    code = f"""
text = open({path!r}).read()
os.truncate({path!r}, 0)
os.unlink({path!r})
say([text[::-1], os.path.exists({path!r})])
hold()
"""
    handle = await rig.start(provider, code, secrets={path: secret.encode()})
    try:
        assert await rig.hear() == [secret[::-1], False]

        shown = [
            *Path("/proc").glob("[0-9]*/cmdline"),
            *(file for file in rig.folder.rglob("*") if file.is_file()),
        ]
        assert [str(file) for file in shown if secret.encode() in _read(file)] == []
    finally:
        await handle.stop(0)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("provider", [LANDLOCK])
async def test_landlock_leaves_the_named_ports_and_no_other(rig: Rig, provider: SandboxProvider):
    """The hole that it states: what answers on one of them, whoever it is."""
    first, second, *_ = provider.paths(rig.draft()).ports
    code = f"""
def reached(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError as error:
        return error.errno
    return 0
def bound(port):
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        return error.errno
    return 0
say([bound({first}), reached({second}), bound(0), bound({second + 1})])
"""
    with socket.create_server(("127.0.0.1", second)):
        said = await rig.ask(provider, code, ports=(first, second))

    assert said == [0, 0, errno.EACCES, errno.EACCES]


@pytest.mark.parametrize("provider", [LANDLOCK])
async def test_landlock_leaves_path_sockets_open_as_it_states(rig: Rig, provider: SandboxProvider):
    async with asyncio.timeout(20):
        path = rig.folder / "engine.sock"
        server = await asyncio.start_unix_server(lambda _, writer: writer.close(), path)
        code = f"socket.socket(socket.AF_UNIX).connect({str(path)!r})\nsay('reached')"

        assert await rig.ask(provider, code) == "reached"
        server.close()
    assert "socket" in provider.holes


@pytest.mark.parametrize("provider", [NETNS])
async def test_netns_has_an_address_and_a_route_that_leads_nowhere(
    rig: Rig, provider: SandboxProvider
):
    before = set(socket.if_nameindex())
    code = """
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.connect(("192.0.2.1", 9))
    address = sock.getsockname()[0]
server = socket.create_server((address, 0))
socket.create_connection(server.getsockname(), 5).close()
try:
    socket.create_connection(("192.0.2.1", 80), 0.5)
except OSError as error:
    say([address, sorted(name for _, name in socket.if_nameindex()), type(error).__name__])
hold()
"""
    handle = await rig.start(provider, code)
    try:
        assert await rig.hear() == ["10.200.0.2", ["eth0", "far0", "lo"], "TimeoutError"]
        assert set(socket.if_nameindex()) == before
    finally:
        await handle.stop(0)


@pytest.mark.parametrize("provider", [NETNS])
async def test_inside_netns_the_cable_cannot_be_moved(rig: Rig, provider: SandboxProvider):
    code = f"""{ATTACK}
def newnet():
    if libc.unshare(0x40000000) < 0:
        raise OSError
def down():
    import fcntl
    with socket.socket() as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sH14x", b"eth0", 0))  # SIOCSIFFLAGS
def host():
    fd = os.open("/proc/1/ns/net", os.O_RDONLY)
    if libc.setns(fd, 0) < 0:
        raise OSError
through([("unshare", newnet), ("down", down), ("setns", host)])
"""
    assert await rig.ask(provider, code) == []


@walls
async def test_a_program_ended_by_force_leaves_nothing_beside_its_log(
    rig: Rig, provider: SandboxProvider
):
    handle = await rig.start(provider, "say('up'); hold()", env={"RIG": json.dumps("x")})
    await rig.hear()
    handle.kill()

    assert (await handle.wait()).signal == signal.SIGKILL
    assert sorted(p.name for p in rig.folder.iterdir()) == ["gateway.sock", "log", "workspace"]
