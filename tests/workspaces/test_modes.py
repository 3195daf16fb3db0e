"""Copies, and folders that a worker writes itself."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from pathlib import Path

import pytest

from postroom.errors import Conflict, InvalidInput
from postroom.sandbox.landlock import LandlockProvider
from postroom.sandbox.limit_monitor import LimitMonitor
from postroom.sandbox.opensandbox.provider import OpenSandboxProvider
from postroom.sandbox.plain import PlainProvider
from postroom.workers.workspaces import covers
from postroom.workers.workspaces.copying import _Copy
from postroom.workers.workspaces.job import Desk, Job, JobFailed
from postroom.workers.workspaces.showing import difference
from tests.sandbox.providers import LANDLOCK, NONE
from tests.workspaces.bench import FREE, Bench, Who, git, repository

CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 7, 0, 0, 0)
"""To become any user (capabilities(7))."""

pytestmark = pytest.mark.anyio


async def text(bench: Bench) -> str:
    held = await bench.bring()
    return (await difference(bench.spaces.store(Who().uid, held), held)).text


async def test_a_copy_of_a_repository_has_what_is_not_committed_and_comes_back_as_a_branch(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    (app / "a.txt").write_text("one\nmine\n")
    (app / "draft.txt").write_text("draft")
    placed = await bench.begin(app, "copy")
    assert await bench.work(placed, "git status --porcelain; cat a.txt draft.txt") == (
        "one\nmine\ndraft"
    )
    await bench.work(placed, "echo theirs >> a.txt; git commit -qam done")
    assert "+theirs" in (said := await text(bench))
    assert "+mine" not in said
    assert git(app, "log", "--format=%s", "postroom/coder").splitlines() == [
        "done",
        "the folder as it was when the worker began",
        "first",
    ]
    assert (app / "a.txt").read_text() == "one\nmine\n"


async def test_a_copy_of_a_repository_with_a_submodule_leaves_the_submodule_as_it_is(
    bench: Bench, tmp_path: Path
):
    app, lib = repository(tmp_path / "app"), repository(tmp_path / "lib")
    git(app, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib), "lib")
    git(app, "commit", "-qm", "with lib")
    placed = await bench.begin(app, "copy")
    assert await bench.work(placed, "cat lib/a.txt; echo two >> a.txt") == "one\n"
    held = await bench.bring()
    assert git(app, "diff", "--name-only", "main", held.branch) == "a.txt"


async def test_a_copy_of_any_folder_follows_no_link_and_its_changes_are_shown(
    bench: Bench, tmp_path: Path
):
    folder = tmp_path / "notes"
    (folder / "deep" / ".git").mkdir(parents=True)
    (folder / "deep" / "a.txt").write_text("one\n")
    (folder / "out").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.path.relpath(folder / "sock"))
    placed = await bench.begin(folder)
    held = bench.spaces.held(Who().uid)
    assert held is not None
    assert held.mode == "copy"
    (note,) = held.notes
    assert all(name in note for name in ("deep/.git", "pipe", "sock"))
    assert (placed.workspace / "out").is_symlink()
    await bench.work(placed, "echo two >> deep/a.txt; echo new > new.txt")
    said = await text(bench)
    assert "+two" in said
    assert "new.txt" in said
    assert (folder / "deep" / "a.txt").read_text() == "one\n"


@pytest.mark.requirement("workspace-git-closed")
async def test_a_worker_writes_the_folder_itself_and_no_git_directory_in_it(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    repository(app / "vendor" / "lib")
    (app / ".husky").mkdir()
    git(app, "config", "core.hooksPath", ".husky")
    before = (app / ".git" / "config").read_text()
    placed = await bench.begin(app, "direct")
    said = await bench.work(
        placed,
        "echo two >> a.txt; for d in .git vendor/lib/.git .husky; do"
        " touch $d/canary || true; mv $d gone || true; rm -rf $d || true; done 2>&1;"
        " git log --format=%s; mv vendor moved; git init -q deep; git init -q vendor/lib",
    )
    assert said.endswith("first\n")
    assert not list(app.rglob("canary"))
    assert (app / ".git" / "config").read_text() == before
    held = await bench.bring()
    # Deeper ones can be moved away with their folder, and others made: that is said.
    assert {"deep/.git", "moved/lib/.git", "vendor/lib/.git"} <= {*held.left}
    assert "+two" in await text(bench)
    assert git(app, "branch", "--list", "postroom/*") == ""


@pytest.mark.requirement("workspace-git-closed")
async def test_what_a_worker_makes_is_said_whatever_it_is_called(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app, "direct")
    far = "/".join(["d" * 100] * 3)
    await bench.work(
        placed,
        f"mkdir -p {far}/.git; for d in \"$(printf 'x\\377')\" \"$(printf 'x\\033[2Jy\\nz')\";"
        ' do mkdir -p "$d/.git"; done',
    )
    held = await bench.bring()
    assert len(held.made) == 3
    shown = json.dumps(held.left, ensure_ascii=False)
    assert shown.encode()
    assert "\x1b" not in shown
    assert "\\n" not in shown
    assert {"x/.git", "xy z/.git"} <= {*held.made}


@pytest.mark.requirement("sandbox-kernel-files-closed")
def test_what_lends_an_account_is_found_and_what_cannot_be_looked_at_is_named(tmp_path: Path):
    here = tmp_path / "here"
    (here / "deep").mkdir(parents=True)
    for name, mode in (("a", 0o4711), ("deep/b", 0o2755), ("plain", 0o755)):
        (here / name).touch()
        (here / name).chmod(mode)
    (here / "deep").chmod(0o2755)
    if capable := os.geteuid() == 0 and sys.platform == "linux":
        (here / "deep" / "c").touch(0o755)
        os.setxattr(here / "deep" / "c", "security.capability", CAPABILITY)
    (here / "link").symlink_to(here / "a")
    (here / "out").symlink_to("/usr/bin")
    (tmp_path / "out").symlink_to(here)
    place = os.open(here, os.O_RDONLY)
    for _ in range(25):  # deeper than a path can say
        os.mkdir("d" * 200, dir_fd=place)
        place, above = os.open("d" * 200, os.O_RDONLY, dir_fd=place), place
        os.close(above)
    os.close(place)

    found = covers.lending(here)

    expected = {"a", "deep/b", "deep/c"} if capable else {"a", "deep/b"}
    assert expected == {name for name in found if not name.startswith("d" * 200)}
    assert [name for name in found if name.endswith("(File name too long)")]
    assert "what lies beyond 3 entries" in covers.lending(here, 3)


@pytest.mark.requirement("sandbox-kernel-files-closed")
async def test_a_file_that_lends_an_account_already_is_closed_to_a_worker(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    for name in ("bin/tool", "moved/tool"):
        (app / name).parent.mkdir()
        (app / name).write_bytes(b"a tool" * 1000)
        (app / name).chmod(0o4755)
    placed = await bench.begin(app, "direct")
    code = "import mmap; f = open('{}', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0:4] = b'evil'"
    said = await bench.work(
        placed,
        f'(python3 -c "{code.format("bin/tool")}") 2>&1 || true; (ln bin/tool other) 2>&1 || true;'
        f' mv moved away; (python3 -c "{code.format("away/tool")}") 2>&1 || true',
    )
    assert said.count("Read-only file system") + said.count("Invalid cross-device link") == 3
    assert (app / "bin" / "tool").read_bytes() == b"a tool" * 1000
    assert (app / "away" / "tool").read_bytes() == b"a tool" * 1000


def test_a_git_directory_that_goes_while_it_is_looked_at_is_none_of_those_that_were_there(
    tmp_path: Path,
):
    (tmp_path / ".git").mkdir()
    before = covers.marks(tmp_path, [".git"])
    assert covers.marks(tmp_path, ["gone/.git"]) not in (before, ())


async def test_an_answer_from_a_sandbox_that_is_nested_deep_is_no_answer(
    bench: Bench, tmp_path: Path
):
    desk = Desk(bench.provider, tmp_path, (), (), tmp_path / "git")
    async with Job(desk, LimitMonitor()) as job:
        (job._out / "answer.json").write_text("[" * 100_000)
        with pytest.raises(JobFailed):
            job._answer("")


async def test_a_folder_that_turns_into_a_link_while_it_is_copied_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    app, secret, target = tmp_path / "app", tmp_path / "secret", tmp_path / "copy"
    for folder in (app / "sub", secret, target):
        folder.mkdir(parents=True)
    (secret / "key").write_text("secret")
    work = _Copy(app, None)

    def swap(_: os.stat_result) -> None:
        """As another worker that writes there does it, between the look and the copy."""
        if (app / "old").exists():
            return
        (app / "sub").rename(app / "old")
        (app / "sub").symlink_to(secret)

    monkeypatch.setattr(work, "_count", swap)
    with pytest.raises(OSError, match="sub"):
        work.top(target)
    assert not list(target.rglob("key"))


@pytest.mark.requirement("workspace-git-closed")
async def test_a_worker_cannot_make_a_git_directory_in_a_folder_that_has_none(
    bench: Bench, tmp_path: Path
):
    folder = tmp_path / "notes"
    folder.mkdir()
    placed = await bench.begin(folder, "direct")
    await bench.work(placed, "echo new > new.txt; ! git init . 2>/dev/null; ! rm .git 2>/dev/null")
    assert (folder / ".git").read_text() == "gitdir:\n"
    assert "new.txt" in await text(bench)
    bench.spaces.ended(Who().uid)
    assert not (folder / ".git").exists()


async def test_only_one_worker_may_write_a_folder_itself_and_only_behind_a_wall_that_guards_it(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "src" / "app")
    await bench.begin(app, "direct")
    for folder in (app, app.parent):
        with pytest.raises(Conflict):
            await bench.begin(folder, "direct", Who("d" * 32, "other"))
    for provider in (LandlockProvider(), PlainProvider()):
        with pytest.raises(InvalidInput, match="cannot keep"):
            await bench.spaces.plan(str(app), "direct", provider, FREE)


async def test_a_copy_that_is_over_the_disk_limit_is_refused_and_a_killed_start_is_made_anew(
    bench: Bench, tmp_path: Path
):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "large").write_bytes(bytes(100_000))
    with pytest.raises(InvalidInput, match="disk limit"):
        await bench.spaces.ready(Who(), str(folder), "copy", bench.provider, 50_000, FREE)
    assert (bench.root(Who()) / "changes.git").exists()
    bench.again()
    placed = await bench.spaces.ready(Who(), str(folder), "copy", bench.provider, None, FREE)
    assert (placed.workspace / "large").stat().st_size == 100_000


async def test_a_sandbox_on_another_machine_is_refused(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    with pytest.raises(InvalidInput, match="on another machine"):
        await bench.spaces.plan(str(app), "", OpenSandboxProvider(None), FREE)


@pytest.mark.parametrize("provider", [LANDLOCK, NONE])
async def test_the_weaker_walls_do_worktrees_too(
    bench: Bench, tmp_path: Path, provider: LandlockProvider | PlainProvider
):
    await provider.probe()
    bench.provider = provider
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(placed, "echo two >> a.txt && git commit -qam second")
    if not isinstance(provider, PlainProvider):
        said = await bench.work(
            placed, f"touch {app}/.git/objects/canary {app}/.git/c 2>&1 || true"
        )
        assert said.count("Permission denied") == 2
    held = await bench.bring()
    assert git(app, "log", "-1", "--format=%s", held.branch) == "second"


def _bare(app: Path) -> Path:
    git(app.parent, "clone", "-q", "--bare", str(app), "bare.git")
    return app.parent / "bare.git"


def _partial(app: Path) -> Path:
    git(app, "config", "remote.origin.promisor", "true")
    return app


def _taken(app: Path) -> Path:
    git(app, "branch", "postroom")
    return app


def _plain(app: Path) -> Path:
    (app.parent / "plain").mkdir()
    return app.parent / "plain"


@pytest.mark.parametrize("make", [_bare, _partial, _taken, _plain])
async def test_a_repository_that_cannot_lend_is_refused_with_a_remedy(
    bench: Bench, tmp_path: Path, make: object
):
    assert callable(make)
    with pytest.raises(InvalidInput) as refused:
        await bench.spaces.plan(
            str(make(repository(tmp_path / "app"))), "worktree", bench.provider, FREE
        )
    assert refused.value.remedy


@pytest.mark.parametrize("mode", ["copy", "direct"])
async def test_whole_system_and_home_folders_and_the_state_folder_are_refused(
    bench: Bench, mode: str
):
    for folder in (Path("/"), Path.home(), Path("/etc"), bench.state, bench.state.parent):
        with pytest.raises(InvalidInput):
            await bench.spaces.plan(str(folder), mode, bench.provider, FREE)
