"""A worker on a branch of its own is brought up to the person's newest commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from postroom.errors import Conflict, InvalidInput
from tests.workspaces.bench import Bench, Who, git, repository

pytestmark = pytest.mark.anyio


def commit(app: Path, name: str, text: str, subject: str = "theirs") -> str:
    (app / name).parent.mkdir(parents=True, exist_ok=True)
    (app / name).write_text(text)
    git(app, "add", name)
    git(app, "commit", "-qm", subject)
    return git(app, "rev-parse", "HEAD")


@pytest.mark.requirement("workspace-sync")
@pytest.mark.parametrize("rebase", [False, True])
async def test_a_worker_gets_newer_commits_and_keeps_what_it_has_and_has_not_committed(
    bench: Bench, tmp_path: Path, rebase: bool
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(
        placed, "echo mine > b.txt; git add .; git commit -qm mine; echo draft > d.txt"
    )
    newest = commit(app, "c.txt", "theirs\n")
    synced = await bench.sync(rebase=rebase)
    assert (synced.onto, synced.taken, synced.conflicts) == (newest, 1, ())
    script = "cat b.txt c.txt d.txt >&2; git status --porcelain >&2; git log --format=%s >&2"
    said = (await bench.work(placed, script)).split("\n")
    assert said[:4] == ["mine", "theirs", "draft", "?? d.txt"]
    log = ["mine", "theirs", "first", ""]
    if not rebase:
        log = ["Merge main into postroom/coder", "theirs", "mine", "first", ""]
    assert sorted(said[4:]) == sorted(log)
    assert git(app, "show", "postroom/coder:d.txt") == "draft"
    assert git(app, "diff", "--name-only", newest, "postroom/coder") == "b.txt\nd.txt"
    assert synced.held.base == newest
    assert git(app, "status", "--porcelain") == ""
    again = await bench.sync(rebase=rebase)
    assert (again.taken, again.conflicts) == (0, ())


@pytest.mark.requirement("workspace-sync")
async def test_a_conflict_leaves_the_worker_as_it_was_and_names_the_files(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(placed, "echo mine > a.txt; git commit -qam mine; echo draft > d.txt")
    commit(app, "a.txt", "theirs\n")
    for rebase in (False, True):
        synced = await bench.sync(rebase=rebase)
        assert synced.conflicts == ("a.txt",)
        said = await bench.work(placed, "cat a.txt d.txt >&2; git log --format=%s >&2")
        assert said == "mine\ndraft\nmine\nfirst\n"
        assert git(app, "for-each-ref", "--format=%(refname)", "refs/postroom").count("\n") == 1


async def test_what_is_not_committed_conflicts_like_a_commit(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(placed, "echo draft > a.txt")
    commit(app, "a.txt", "theirs\n")
    assert (await bench.sync()).conflicts == ("a.txt",)
    assert await bench.work(placed, "cat a.txt >&2; git status --porcelain >&2") == (
        "draft\n M a.txt\n"
    )


async def test_a_file_that_git_ignores_is_not_written_over(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(placed, "echo '*.env' > .gitignore; echo secret > x.env")
    (app / "x.env").write_text("theirs\n")
    git(app, "add", "-f", "x.env")
    git(app, "commit", "-qm", "theirs")
    assert (await bench.sync()).conflicts == ("x.env",)
    assert await bench.work(placed, "cat x.env >&2; git log --format=%s >&2") == "secret\nfirst\n"


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.workspaces.bench import Bench
asyncio.run(Bench(Path(sys.argv[1])).sync())
"""


def _killed(bench: Bench, workspace: Path, written: int) -> None:
    """Begin to bring the worker up to date, and kill that when so many files are there."""
    record = bench.root(Who()) / "workspace.json"
    command = (sys.executable, "-c", KILLED, str(bench.folder))
    killed = subprocess.Popen(command, start_new_session=True)
    end = time.monotonic() + 60
    while '"moving": []' in record.read_text():
        assert killed.poll() is None and time.monotonic() < end  # noqa: PT018
    while killed.poll() is None and len(list(workspace.iterdir())) < 2 + written:
        assert time.monotonic() < end
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()


@pytest.mark.requirement("workspace-sync")
@pytest.mark.parametrize("written", [0, 50, 300])
async def test_a_kill_in_the_middle_leaves_the_worker_as_before_or_as_after(
    bench: Bench, tmp_path: Path, written: int
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(
        placed, "echo mine > b.txt; git add .; git commit -qm mine; echo draft >> a.txt"
    )
    for number in range(400):
        (app / f"n{number}").write_text(f"{number}\n" * 2000)
    git(app, "add", ".")
    newest = commit(app, "c.txt", "theirs\n")
    _killed(bench, placed.workspace, written)
    bench.again()
    placed = await bench.begin(app)  # its next start
    script = (
        "cat a.txt b.txt >&2; ls | wc -l >&2; git status --porcelain >&2; git log --format=%H >&2"
    )
    said = (await bench.work(placed, script)).split("\n")
    assert said[:3] == ["one", "draft", "mine"]
    assert said[3:5] == ["403", " M a.txt"]
    assert newest in said
    held = await bench.bring()
    assert (held.moving, held.base, held.left) == ((), newest, ())
    assert git(app, "for-each-ref", "refs/postroom/*/saved") == ""


RESOLVE = {
    False: "git merge -q person/main || true; {}; git add -A; git commit -qm joined",
    True: "git rebase -q person/main || true; {}; git add -A; GIT_EDITOR=true git rebase --continue",
}


@pytest.mark.requirement("workspace-merge-undone")
@pytest.mark.parametrize("rebase", [False, True])
async def test_a_merge_of_the_agent_is_shown_beside_both_sides_and_counts_once_its_person_says_so(
    bench: Bench, tmp_path: Path, rebase: bool
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(placed, "echo mine > a.txt; echo b > b.txt; git add .; git commit -qm mine")
    before = (await bench.bring()).brought
    newest = commit(app, "a.txt", "theirs\n")
    assert (await bench.sync(rebase=rebase, resolve=True)).conflicts == ("a.txt",)
    assert (await bench.sync(rebase=rebase, resolve=True)).joined is None  # it has done nothing yet
    git(app, "gc", "-q", "--prune=now")
    await bench.work(placed, RESOLVE[rebase].format("echo both > a.txt; echo evil >> b.txt"))
    for _ in range(2):
        found = (await bench.sync(rebase=rebase)).joined
        assert found is not None
        assert (found.onto, found.before) == (newest, before)
        lines = found.text.splitlines()
        for line in ("- theirs", " -mine", "++both", "++evil"):
            assert line in lines
    offered = await bench.spaces.offer(Who().uid)
    assert "that its agent made, and that does not count yet" in offered.hinders
    with pytest.raises(Conflict, match="does not count yet"):
        await bench.spaces.merge(Who().uid)
    with pytest.raises(Conflict, match="has gone on"):
        await bench.accept(before)
    bench.again()
    assert (await bench.accept(found.commit)).held.joining == ()
    with pytest.raises(InvalidInput):
        await bench.accept(found.commit)
    assert (await bench.sync(rebase=rebase)).joined is None
    assert (await bench.spaces.merge(Who().uid)).after
    assert (app / "a.txt").read_text() == "both\n"
    assert "joined" not in git(app, "for-each-ref", "refs/postroom")


async def test_what_its_agent_did_not_join_hinders_nothing_and_ends_with_a_merge_of_git(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    await bench.work(placed, "echo mine > a.txt; git commit -qam mine")
    commit(app, "a.txt", "theirs\n")
    assert (await bench.sync(resolve=True)).conflicts == ("a.txt",)
    await bench.work(placed, "git reset -q --hard HEAD~1; echo more > b.txt")
    synced = await bench.sync()
    assert (synced.joined, synced.conflicts, synced.held.joining) == (None, (), ())
    assert await bench.work(placed, "cat a.txt b.txt >&2") == "theirs\nmore\n"


@pytest.mark.requirement("workspace-merge-undone")
async def test_nothing_of_the_worker_chooses_what_its_merge_is_shown_as(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    mark = tmp_path / "ran"
    driver = f"touch {mark}; cat"
    for name in ("diff.x.textconv", "diff.x.command", "core.pager", "diff.external"):
        git(app, "config", name, driver)
    placed = await bench.begin(app)
    await bench.work(placed, "echo mine > a.txt; git commit -qam mine")
    commit(app, "a.txt", "theirs\n")
    await bench.sync(resolve=True)
    evil = r"echo both > a.txt; echo '* diff=x' > .gitattributes; printf 'x\033]0;x\a' > ':(top)x'"
    await bench.work(placed, RESOLVE[False].format(evil))
    found = (await bench.sync()).joined
    assert found is not None
    assert "++both" in found.text
    assert not mark.exists()
