"""Files that lend their owner's account to whoever runs them: none comes out of a sandbox with a system call filter."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from postroom.sandbox import bubblewrap_program, plain, seccomp
from postroom.sandbox.memfd import memory_file
from postroom.sandbox.port import SandboxProvider
from tests.sandbox.providers import ALL, needs_root
from tests.sandbox.rig import Rig

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a system call filter"),
]

STRANGER = 12345
SET_ID = stat.S_ISUID | stat.S_ISGID
X86 = os.uname().machine == "x86_64"

# Every way to give a file the bits or a capability: each says what became of it.
MAKE = f"""
import ctypes, os, shutil, stat, struct
libc = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[2])
os.umask(0)
def call(*arguments):
    if libc.syscall(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
def program(name):
    shutil.copy("/usr/bin/id", name)
    os.chmod(name, 0o755)
    return name
def on(name, act):
    return lambda: act(program(name))
def of(name, act):
    def opened(path):
        with open(path) as file:
            act(file.fileno())
    return on(name, opened)
def made(path, flags, mode):
    def attack():
        place = os.open(path, flags | os.O_WRONLY, mode)
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            os.link(f"/proc/self/fd/{{place}}", "tmpfile", src_dir_fd=place, follow_symlinks=True)
        os.close(place)
    return attack
def openat2():
    how = struct.pack("=QQQ", os.O_CREAT | os.O_WRONLY, 0o6755, 0)
    call(437, -100, b"openat2", how, len(how))
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 7, 0, 0, 0)  # to become any user
attacks = dict(
    chmod=on("chmod", lambda name: os.chmod(name, 0o4755)),
    group=on("group", lambda name: os.chmod(name, 0o2755)),
    both=on("both", lambda name: call({90 if X86 else 53}, *(() if {X86} else (-100,)), name.encode(), 0o6755)),
    fchmod=of("fchmod", lambda place: os.fchmod(place, 0o4755)),
    fchmodat=on("fchmodat", lambda name: os.chmod(name, 0o6755, dir_fd=os.open(".", os.O_RDONLY))),
    fchmodat2=on("fchmodat2", lambda name: call(452, -100, name.encode(), 0o6755, 0)),
    open=made("open", os.O_CREAT, 0o4755),
    truncate=made("truncate", os.O_CREAT | os.O_TRUNC, 0o2755),
    creat=lambda: made("creat", os.O_CREAT | os.O_TRUNC, 0o6755)() if not {X86} else call(85, b"creat", 0o6755),
    tmpfile=made(".", os.O_TMPFILE, 0o6755),
    mknod=lambda: os.mknod("mknod", stat.S_IFREG | 0o6755),
    mkdir=lambda: call(*((83,) if {X86} else (34, -100)), b"mkdir", 0o2755),
    folder=lambda: (os.mkdir("folder"), os.chmod("folder", 0o2755)),
    openat2=openat2,
    setxattr=on("setxattr", lambda name: os.setxattr(name, "security.capability", CAPABILITY)),
    fsetxattr=of("fsetxattr", lambda place: os.setxattr(place, "security.capability", CAPABILITY)),
)
answers = {{}}
for name, attack in attacks.items():
    try:
        attack()
    except OSError as error:
        answers[name] = error.errno
    else:
        answers[name] = 0
say(answers)
"""
HARMLESS_WITHOUT = {"mkdir"}
"""mkdir(2) itself takes no such bit; it is refused so that a program hears of it."""


def _lent(folder: Path) -> set[str]:
    """The names of all below `folder` that have such a bit or a capability."""
    found = set()
    for path in folder.rglob("*"):
        marked = "security.capability" in os.listxattr(path, follow_symlinks=False)
        if marked or path.lstat().st_mode & SET_ID:
            found.add(path.name)
    return found


@pytest.mark.requirement("sandbox-kernel-files-closed")
@pytest.mark.parametrize("provider", ALL)
async def test_no_file_with_a_set_id_bit_or_a_capability_comes_out_of_a_wall(
    rig: Rig, provider: SandboxProvider
):
    answers = await rig.ask(provider, MAKE)

    if provider.name == plain.NAME:
        through = {name for name, number in answers.items() if number == 0}
        # fchmodat2 is newer than some kernels, and a file capability is root's to give.
        assert through >= set(answers) - {"fchmodat2", "setxattr", "fsetxattr"}
        assert _lent(rig.workspace) >= through - HARMLESS_WITHOUT
    else:
        assert 0 not in answers.values()
        assert _lent(rig.workspace) == set()


@pytest.mark.requirement("sandbox-kernel-files-closed")
@needs_root
@pytest.mark.parametrize("provider", ALL)
async def test_another_account_that_runs_a_workers_program_stays_itself(
    rig: Rig, provider: SandboxProvider
):
    rig.folder.chmod(0o755)
    rig.workspace.chmod(0o755)
    await rig.ask(provider, MAKE)

    became = _as_stranger(rig.workspace / "chmod", "-u")

    assert int(became) == (0 if provider.name == plain.NAME else STRANGER)


def _as_stranger(*words: str | Path) -> str:
    done = subprocess.run(
        words,
        user=STRANGER,
        group=STRANGER,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
    return done.stdout


def filtered(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in `folder` with the filter and with no other wall."""
    with memory_file(seccomp.program()) as rules:
        wrap = [
            str(bubblewrap_program.candidates()[0]),
            "--dev-bind",
            "/",
            "/",
            "--seccomp",
            str(rules),
        ]
        return subprocess.run(
            [*wrap, "--", *words],
            cwd=folder,
            pass_fds=(rules,),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def has(program: str) -> pytest.MarkDecorator:
    """Skip where it is not installed; rustup's `cargo` is a file that runs nothing without a toolchain.

    What a machine need not have (npm, cargo) carries no promise, since a promise that is skipped fails a run in CI.
    """
    found = shutil.which(program)
    runs = (
        found
        and not subprocess.run([found, "--version"], capture_output=True, check=False).returncode
    )
    return pytest.mark.skipif(not runs, reason=f"there is no {program}")


def _archive(folder: Path) -> Path:
    """An archive with a program of mode 6755 and a plain file."""
    (folder / "there").mkdir()
    (folder / "there" / "tool").write_text("a tool")
    (folder / "there" / "plain").write_text("plain")
    (folder / "there" / "tool").chmod(0o6755)
    archive = folder / "made.tar"
    subprocess.run(["tar", "-cf", archive, "-C", folder / "there", "."], check=True)
    return archive


@pytest.mark.requirement("sandbox-kernel-files-closed")
@has("tar")
def test_tar_says_which_mode_it_cannot_set_and_unpacks_everything(tmp_path: Path):
    archive = _archive(tmp_path)
    (here := tmp_path / "here").mkdir()

    done = filtered(["tar", "-xpf", str(archive)], here)

    assert "tool: Cannot change mode to rwsr-sr-x: Operation not permitted" in done.stderr
    assert ((here / "tool").read_text(), (here / "plain").read_text()) == ("a tool", "plain")
    assert _lent(here) == set()


@pytest.mark.requirement("sandbox-kernel-files-closed")
@has("tar")
def test_python_unpacks_what_has_the_bits(tmp_path: Path):
    archive = _archive(tmp_path)
    (here := tmp_path / "here").mkdir()
    code = f"import tarfile; tarfile.open({str(archive)!r}).extractall({str(here)!r}, filter='fully_trusted')"

    done = filtered([sys.executable, "-c", code], here)

    assert (done.returncode, done.stderr) == (0, "")
    assert ((here / "tool").read_text(), (here / "plain").read_text()) == ("a tool", "plain")
    assert _lent(here) == set()


@pytest.mark.requirement("sandbox-kernel-files-closed")
def test_cp_says_which_mode_it_cannot_keep_and_copies_the_file(tmp_path: Path):
    (tmp_path / "tool").write_text("a tool")
    (tmp_path / "tool").chmod(0o4755)
    (tmp_path / "plain").write_text("plain")

    kept = filtered(["cp", "-a", "tool", "copy"], tmp_path)
    plainly = filtered(["cp", "-a", "plain", "again"], tmp_path)

    assert "Operation not permitted" in kept.stderr
    assert (tmp_path / "copy").read_text() == "a tool"
    assert (plainly.returncode, plainly.stderr) == (0, "")
    assert _lent(tmp_path) == {"tool"}


@pytest.mark.requirement("sandbox-kernel-files-closed")
@has("git")
def test_git_makes_clones_and_unpacks_a_repository(tmp_path: Path):
    script = """
set -e
git init -q there && cd there
echo one > file && chmod 755 file && git add .
git -c user.name=a -c user.email=a@b.invalid commit -qm one && cd ..
git clone -q there here && cd here
git archive HEAD | tar -xf - -C .. && git gc -q && git fsck && git status --porcelain
"""
    done = filtered(["sh", "-c", script], tmp_path)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "file").stat().st_mode & 0o777 == 0o755


@has("npm")
def test_npm_packs_and_installs_a_package(tmp_path: Path):
    (package := tmp_path / "package").mkdir()
    (package / "package.json").write_text(
        json.dumps({"name": "tool", "version": "1.0.0", "bin": {"tool": "tool.js"}})
    )
    (package / "tool.js").write_text("#!/usr/bin/env node\nconsole.log('it runs')\n")
    (user := tmp_path / "user").mkdir()
    (user / "package.json").write_text("{}")
    quiet = "--offline --no-audit --no-fund --no-update-notifier --cache=../cache"
    script = f"""
set -e
npm pack {quiet} ../package >/dev/null
npm install {quiet} ./tool-1.0.0.tgz
node_modules/.bin/tool
"""
    done = filtered(["sh", "-c", script], user)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "it runs" in done.stdout


@has("cargo")
def test_cargo_builds_and_runs_a_program(tmp_path: Path):
    made = filtered(["cargo", "init", "-q", "--offline", "--name", "tool", "."], tmp_path)
    done = filtered(["cargo", "run", "-q", "--offline"], tmp_path)

    assert made.returncode == 0, made.stderr
    assert "Hello, world!" in done.stdout, done.stderr
