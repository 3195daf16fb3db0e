"""A worker sees the branches of its person as they are now."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.errors import InvalidInput
from postroom.workers.workspaces.records import Held
from postroom.workers.workspaces.tracking import checked, chosen, marks
from tests.workspaces.bench import FREE, Bench, Who, git, repository
from tests.workspaces.test_syncing import commit

pytestmark = pytest.mark.anyio

UID = Who().uid


@pytest.mark.requirement("workspace-sync")
async def test_a_worker_sees_its_persons_branch_move_and_can_change_nothing_of_it(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    placed = await bench.begin(app)
    newest = commit(app, "c.txt", "theirs\n")
    await bench.spaces.track(UID)
    assert await bench.work(placed, "git rev-parse person/main >&2") == f"{newest}\n"
    script = "git commit -q --allow-empty -m mine && git gc -q && git merge -q person/main && cat c.txt >&2"
    assert (await bench.work(placed, script)).endswith("theirs\n")
    hostile = """
    ! git update-ref refs/remotes/person/main HEAD~1 2>/dev/null
    ! echo x > .git/refs/remotes/person/evil 2>/dev/null
    git pack-refs --all 2>/dev/null || true
    """
    await bench.work(placed, hostile)
    newest = commit(app, "d.txt", "theirs\n")
    git(app, "pack-refs", "--all")
    await bench.spaces.track(UID)
    assert await bench.work(placed, "git rev-parse person/main >&2; git fsck >&2") == f"{newest}\n"
    held = await bench.bring()
    standing = bench.spaces.standing[UID]
    assert (standing.branch, standing.newest, standing.behind, standing.ahead) == (
        *("main", newest, 1),
        2,
    )
    assert git(app, "diff", "--name-only", held.base, "postroom/coder") == ""


async def test_the_branch_that_its_own_follows_is_seen_and_others_where_they_are_asked_for(
    bench: Bench, tmp_path: Path
):
    origin = repository(tmp_path / "origin")
    git(origin, "branch", "release/1")
    git(tmp_path, "clone", "-q", str(origin), "app")
    app = tmp_path / "app"
    git(app, "branch", "private")
    placed = await bench.begin(app)
    newest = commit(origin, "c.txt", "new\n")
    git(app, "fetch", "-q")
    await bench.spaces.track(UID)
    shown = "git for-each-ref --format='%(refname:short)' refs/remotes >&2; git rev-parse person/origin/main >&2"
    assert await bench.work(placed, shown) == f"person/main\nperson/origin/main\n{newest}\n"


@pytest.mark.requirement("workspace-sync")
async def test_branches_that_patterns_name_are_seen_as_they_are_and_no_other(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    for name in ("release/1", "Release/1", "person/main", "main2", "fix", "fix2/deep", "private"):
        git(app, "branch", name)
    patterns = ("release/*", "Release/*", "person/main", "fix", "fix2", "ma*", "none/*")
    placed = await bench.begin(app, patterns=patterns)
    held = bench.spaces.held(UID)
    assert held is not None
    assert held.notes == (
        "no branch is called none/* yet",
        "not seen, since their names collide or are unusual: release/1",
    )
    seen = "git for-each-ref --format='%(refname:lstrip=3)' refs/remotes/person >&2"
    shown = ["Release/1", "fix", "fix2/deep", "main", "main2", "person/main"]
    assert (await bench.work(placed, seen)).split() == shown
    newest = commit(app, "c.txt", "theirs\n")
    git(app, "branch", "-D", "-q", "fix")
    git(app, "branch", "fix/now")
    git(app, "branch", "none/yet")
    await bench.spaces.track(UID)
    shown = ["Release/1", "fix/now", "fix2/deep", "main", "main2", "none/yet", "person/main"]
    assert (await bench.work(placed, seen)).split() == shown
    both = "git rev-parse person/main person/person/main HEAD >&2"
    found = (await bench.work(placed, both)).split()
    assert found == [newest, found[2], found[2]]


async def test_the_branch_that_it_began_from_is_seen_beside_any_number_of_others(
    bench: Bench, tmp_path: Path
):
    app = repository(tmp_path / "app")
    head = git(app, "rev-parse", "HEAD")
    packed = sorted(f"{head} refs/heads/a{number}\n" for number in range(520))
    (app / ".git" / "packed-refs").write_text(f"# pack-refs with: sorted\n{''.join(packed)}")
    placed = await bench.begin(app, patterns=("*",))
    seen = "git for-each-ref refs/remotes/person | wc -l >&2; git rev-parse -q person/main >&2"
    assert (await bench.work(placed, seen)).split()[0] == "501"


def test_what_no_branch_can_be_called_is_no_pattern():
    wrong = ["", "-x", "--all", "a b", "a\nb", "a..b", "a//b", "/a", "a/", ".a", "a.lock", "x@{1}"]
    wrong += [
        "a\x1b[2J",
        "refs/heads/a",
        "a[b]",
        "a?",
        "a\\b",
        "a:b",
        "^a",
        "~a",
        "*a*a*a*a*a*",
        "\ud800",
        "a\u202eb",
    ]
    for pattern in (*wrong, "x" * 300):
        with pytest.raises(InvalidInput, match="is no pattern of branches"):
            checked(("main", pattern))
    assert checked(("a/**", "b", "b", "feature/*-x")) == ("a/**", "b", "feature/*-x")
    with pytest.raises(InvalidInput, match="over 20 patterns"):
        checked([f"a{number}" for number in range(21)])


@pytest.mark.parametrize("mode", ["copy", "direct"])
async def test_patterns_are_refused_where_a_worker_has_no_branch_of_a_repository(
    bench: Bench, tmp_path: Path, mode: str
):
    (folder := tmp_path / "plain").mkdir()
    with pytest.raises(InvalidInput, match="in a repository alone"):
        await bench.spaces.plan(str(folder), mode, bench.provider, FREE, ("a",))
    with pytest.raises(InvalidInput, match="needs a workspace"):
        await bench.spaces.plan("", "", bench.provider, FREE, ("a",))


async def test_a_branch_in_the_place_of_a_folder_of_branches_is_seen(bench: Bench, tmp_path: Path):
    app = repository(tmp_path / "app")
    git(app, "switch", "-qc", "a/b")
    placed = await bench.begin(app)
    git(app, "switch", "-q", "main")
    git(app, "branch", "-D", "a/b")
    await bench.spaces.track(UID)
    assert await bench.work(placed, "git branch -r >&2") == ""
    assert (await bench.bring()).origin == "a/b"
    assert bench.spaces.standing[UID].behind == 0


def test_names_that_no_git_makes_workers_branches_and_those_that_collide_are_not_seen():
    held = Held("/app", "worktree", top="/app", origin="main", patterns=("*",))
    one = "1" * 40
    names = (
        "main",
        "x",
        "x/y",
        "../../evil",
        "a..b",
        "-x",
        ".hidden",
        "a.lock",
        "a\x1b[2J",
        "p/@{1}",
    )
    listed = {f"refs/heads/{name}": one for name in (*names, "postroom/coder", "z" * 300)}
    listed |= {"refs/remotes/origin/main": one, "refs/remotes/main/x": one}
    assert sorted(chosen(listed, held, "refs/remotes/origin/main")) == ["main", "origin/main", "x"]
    listed = dict.fromkeys(
        ("refs/heads/A/b", "refs/heads/a", "refs/heads/\u00c9", "refs/heads/e\u0301"), one
    )
    assert sorted(chosen(listed | {"refs/heads/Main": one}, held, "")) == [
        "A/b",
        "Main",
        "\u0065\u0301",
    ]
    listed |= {"refs/heads/postroom/coder": one}
    asked = held.after(patterns=("postroom/*",))
    assert "postroom/coder" in chosen(listed, asked, "")


@pytest.mark.parametrize("how", ["commit", "pack", "branch", "upstream"])
def test_marks_differ_once_a_branch_has_changed_and_only_then(tmp_path: Path, how: str):
    app = repository(tmp_path / "app")
    git(app, "branch", "b/c")
    before = marks(app)[:-1]
    git(app, "status")
    git(app, "update-ref", "refs/heads/postroom/coder", "HEAD")
    at_rest = marks(app)[:-1]
    if how == "commit":
        git(app, "switch", "-q", "b/c")
        commit(app, "x", "")
    elif how == "pack":
        git(app, "pack-refs", "--all")
    elif how == "branch":
        git(app, "branch", "-D", "b/c")
    else:
        git(app, "config", "branch.main.remote", "origin")
    assert marks(app, workers=True)[:-1] != at_rest
    assert before == at_rest or len(before) == len(at_rest)
    assert marks(app)[:-1] != at_rest
