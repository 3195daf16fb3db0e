"""Submodules whose objects are on the machine come along; what a hostile `.gitmodules` says does nothing."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.program import GitFailed
from postroom.workers.workspaces.repository import Modules, modules
from tests.workspaces.bench import Bench, Who, git, repository

pytestmark = pytest.mark.anyio

FILES = ("-c", "protocol.file.allow=always")


@cache
def _template() -> tempfile.TemporaryDirectory[str]:
    """Git takes seconds to make it."""
    place = tempfile.TemporaryDirectory(prefix="submodules-")
    _make(Path(place.name))
    return place


def with_modules(folder: Path) -> Path:
    """A repository with the submodule `vendor/shop`, which has one of its own, `deep`."""
    shutil.copytree(Path(_template().name, "app"), folder / "app", symlinks=True)
    return folder / "app"


def _make(folder: Path) -> None:
    deep, shop = repository(folder / "deep"), repository(folder / "shop")
    git(shop, *FILES, "submodule", "--quiet", "add", str(deep), "deep")
    git(shop, "commit", "-qm", "deep")
    app = repository(folder / "app")
    git(app, *FILES, "submodule", "--quiet", "add", str(shop), "vendor/shop")
    git(app, "commit", "-qm", "shop")
    git(app, *FILES, "submodule", "--quiet", "update", "--init", "--recursive")


def whole(app: Path) -> dict[str, bytes]:
    """All that lies in the git directories of a person's submodules."""
    found = (app / ".git" / "modules").rglob("*")
    return {str(path): path.read_bytes() for path in found if path.is_file()}


@pytest.mark.requirement("workspace-lends-objects-alone")
async def test_submodules_come_along_and_what_is_done_in_them_stays_in_the_workers_folder(
    bench: Bench, tmp_path: Path
):
    app = with_modules(tmp_path)
    before = whole(app)
    placed = await bench.begin(app)
    held = bench.spaces.held(Who().uid)
    assert held is not None
    assert "submodules come along" in held.notes[0]
    assert "vendor/shop, vendor/shop/deep" in held.notes[0]
    script = (
        "cat vendor/shop/a.txt vendor/shop/deep/a.txt >&2; git status --porcelain >&2;"
        " git submodule status --recursive >&2"
    )
    said = (await bench.work(placed, script)).split("\n")
    assert said[:2] == ["one", "one"]
    assert [line.split()[1] for line in said[2:4]] == ["vendor/shop", "vendor/shop/deep"]
    assert all(line.startswith(" ") for line in said[2:4])
    await bench.work(placed, "echo two >> a.txt")
    held = await bench.bring()
    assert held.left == ()
    assert git(app, "diff", "--name-only", "main", "postroom/coder") == "a.txt"
    await bench.work(
        placed, "cd vendor/shop; echo new > b.txt; git add .; git commit -qm b; cd deep; echo x > x"
    )
    held = await bench.bring()
    assert held.left == (
        "vendor/shop: what it has committed in this submodule",
        "vendor/shop/deep: what it has changed in this submodule",
    )
    assert git(app, "diff", "--name-only", "main", "postroom/coder") == "a.txt"
    assert (placed.workspace / "vendor/shop/b.txt").read_text() == "new\n"
    assert whole(app) == before


@pytest.mark.requirement("workspace-lends-objects-alone")
async def test_a_submodule_follows_the_persons_newer_commit_and_may_be_moved_to_one_that_they_have(
    bench: Bench, tmp_path: Path
):
    app = with_modules(tmp_path)
    first = git(app / "vendor/shop", "rev-parse", "HEAD")
    placed = await bench.begin(app)
    (app / "vendor/shop/a.txt").write_text("two\n")
    git(app / "vendor/shop", "commit", "-qam", "two")
    git(app, "commit", "-qam", "newer shop")
    assert not (await bench.sync()).conflicts
    assert (
        await bench.work(placed, "cat vendor/shop/a.txt >&2; git status --porcelain >&2") == "two\n"
    )
    assert (await bench.bring()).left == ()
    assert git(app, "for-each-ref", "refs/heads/postroom") == ""
    await bench.work(placed, f"git -C vendor/shop checkout -q {first}")
    assert (await bench.bring()).left == ()
    assert git(app, "rev-parse", "postroom/coder:vendor/shop") == first


@pytest.mark.requirement("workspace-lends-objects-alone")
async def test_one_that_is_not_on_the_machine_is_said_with_the_command_and_comes_at_the_next_start(
    bench: Bench, tmp_path: Path
):
    app = with_modules(tmp_path)
    git(app, "submodule", "--quiet", "deinit", "-f", "--all")
    modules = app / ".git" / "modules"
    modules.rename(tmp_path / "away")
    placed = await bench.begin(app)
    held = bench.spaces.held(Who().uid)
    assert held is not None
    assert f"git -C {app} submodule update --init --recursive vendor/shop" in held.notes[0]
    assert list((placed.workspace / "vendor/shop").iterdir()) == []
    (tmp_path / "away").rename(modules)
    git(app, *FILES, "submodule", "--quiet", "update", "--init", "--recursive")
    placed = await bench.begin(app)
    assert await bench.work(placed, "cat vendor/shop/deep/a.txt >&2") == "one\n"


NAMES = (
    "../../../secret/.git",
    "..",
    "/etc",
    "link",
    "linked/inner",
    "other",
    "-x",
    "a\\\\b",
    "x/../../y",
)


def planted(folder: Path, said: str) -> Path:
    """A repository with a `.gitmodules` that says that, and much in its git directory for it to name."""
    app, secret = with_modules(folder), repository(folder / "secret")
    modules = app / ".git" / "modules"
    (modules / "link").symlink_to(secret / ".git")
    (folder / "inner").mkdir()
    (modules / "linked").symlink_to(folder / "inner")
    shutil.copytree(secret / ".git", folder / "inner" / "inner")
    shutil.copytree(secret / ".git", modules / "other")
    (app / ".gitmodules").write_text(said)
    git(app, "add", ".gitmodules")
    git(app, "commit", "-qm", "hostile")
    return app


@pytest.mark.requirement("workspace-lends-objects-alone")
async def test_what_gitmodules_names_leads_nowhere_and_runs_nothing(bench: Bench, tmp_path: Path):
    ran = tmp_path / "ran"
    evil = f'path = vendor/shop\n\turl = ext::sh -c "touch {ran}"\n\tupdate = !touch {ran}\n'
    app = planted(tmp_path, "".join(f'[submodule "{name}"]\n\t{evil}' for name in NAMES))
    placed = await bench.begin(app)
    lent = {
        str(mount.source) for mount in placed.mounts if mount.target.startswith("/opt/borrowed")
    }
    assert lent == {str(app / ".git" / "objects")}
    await bench.work(placed, "echo two >> a.txt; git submodule update --init --no-fetch || true")
    with pytest.raises(GitFailed, match="disallowed submodule"):  # no tree with it is taken
        await bench.bring()
    assert not ran.exists()


@pytest.mark.requirement("workspace-lends-objects-alone")
async def test_a_path_out_of_the_repository_is_none(bench: Bench, tmp_path: Path):
    app = planted(tmp_path, "")
    for path in (
        "../out",
        "/tmp/out",
        ".git/hooks",
        "a.txt",
        "vendor",
        "vendor/../vendor/shop",
        "",
    ):
        said = f'[submodule "vendor/shop"]\n\tpath = {path}\n'
        (app / ".gitmodules").write_text(said)
        git(app, "commit", "-qam", path or "empty")
        found = await modules(Git(app), git(app, "rev-parse", "HEAD"), bench.state)
        assert found == Modules(), path


@pytest.mark.requirement("workspace-lends-objects-alone")
async def test_objects_that_a_submodule_borrows_from_elsewhere_are_judged_like_those_of_a_repository(
    bench: Bench, tmp_path: Path
):
    app = with_modules(tmp_path)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "letter").write_text("private")
    info = app / ".git" / "modules" / "vendor/shop" / "objects" / "info"
    (info / "alternates").write_text(f"{tmp_path / 'plain'}\n")
    commit = git(app, "rev-parse", "HEAD")
    found = await modules(Git(app), commit, bench.state)
    assert found == Modules((), ("vendor/shop",))
    other = repository(tmp_path / "other") / ".git" / "objects"
    placed = await bench.begin(app)
    (info / "alternates").write_text(f"{other}\n")
    placed = await bench.begin(app)
    assert str(other) not in {str(mount.source) for mount in placed.mounts}
