"""A worker that plants in its repository whatever might run a program in the next git command, at all our commands.

Each trick writes to a file of the host that a git outside of the sandbox could write, and to one of the workspace that
a git inside could.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import PostRoom, until
from tests.workspaces.bench import QUIET, Bench, git, repository
from tests.workspaces.test_room import spawn, task

PLANT = r"""
out={outside}
cat > evil.sh <<'EOF'
#!/bin/sh
echo "$0 $@" >> {outside}
echo "$0 $@" >> /workspace/ran
cat 2>/dev/null
EOF
chmod +x evil.sh
evil=/workspace/evil.sh
[ -e $evil ] || evil=$PWD/evil.sh
g() {{ git config "$1" "$2"; }}
mkdir -p .git/hooks other
for hook in applypatch-msg pre-applypatch post-applypatch pre-commit prepare-commit-msg commit-msg post-commit \
    pre-rebase post-checkout post-merge pre-push pre-receive update post-receive post-update reference-transaction \
    push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman post-index-change; do
  cp evil.sh .git/hooks/$hook
done
echo '* filter=evil diff=evil merge=evil ident' > .gitattributes
echo '* filter=evil diff=evil merge=evil' > .git/info/attributes
echo '*.txt filter=lfs' >> .gitattributes
printf 'dangling' > data.txt
git add -A
git -c core.hooksPath=/dev/null commit -qm planted
first=$(git rev-parse HEAD~1)
git replace HEAD $first
git rev-parse HEAD > .git/info/grafts
printf '[submodule "x"]\n\tpath = x\n\turl = ext::%s\n' $evil > .gitmodules
git update-index --add --cacheinfo 160000,$first,x
git init -q other
printf '[core]\n\tfsmonitor = %s\n' $evil >> other/.git/config
printf '[core]\n\tfsmonitor = %s\n\teditor = %s\n' $evil $evil > .git/more
g core.fsmonitor $evil
g core.hooksPath .git/hooks
g core.sshCommand $evil
g core.gitProxy $evil
g core.pager $evil
g core.editor $evil
g core.askPass $evil
g core.alternateRefsCommand $evil
g core.attributesFile /workspace/.gitattributes
g core.worktree /
g filter.evil.clean $evil
g filter.evil.smudge $evil
g filter.evil.process $evil
g filter.evil.required true
g filter.lfs.clean $evil
g filter.lfs.process $evil
g diff.external $evil
g diff.evil.textconv $evil
g diff.evil.command $evil
g merge.evil.driver $evil
g alias.bundle "!$evil"
g alias.rev-parse "!$evil"
g alias.add "!$evil"
g credential.helper "!$evil"
g uploadpack.packObjectsHook $evil
g receive.procReceiveRefs refs
g gpg.program $evil
g commit.gpgSign true
g remote.origin.url "ext::$evil"
g remote.origin.uploadpack $evil
g include.path /workspace/.git/more
g includeIf.gitdir:/.path /workspace/.git/more
g protocol.ext.allow always
g safe.directory '*'
g extensions.worktreeConfig true
printf '[core]\n\tfsmonitor = %s\n' $evil > .git/config.worktree
echo / >> .git/objects/info/alternates
echo /workspace/.git/objects >> .git/objects/info/alternates
printf 'x' > "$(printf 'esc\033[31m\nname')"
mkdir -p $(seq -s/ 1 60)
echo deep > $(seq -s/ 1 60)/file
ln -s / root
ln -s {outside} canary-link
mkfifo pipe
echo work > work.txt
rm -f ran
"""


@pytest.mark.requirement("mend-git-settings")
@pytest.mark.requirement("workspace-git-closed")
def test_no_command_of_ours_runs_what_a_worker_planted(room: PostRoom, tmp_path: Path):
    app = repository(tmp_path / "app")
    # Where a program of the host could write, as the trial shows; the sandbox has no such folder.
    canary = tmp_path / "canary"
    before = _state(app)
    spawn(room, "evil", "-w", str(app))
    done = task(room, "evil", PLANT.format(outside=canary))
    until(lambda: git(app, "branch", "--list", "postroom/evil"))
    folder = room.state / "workers" / room.worker("evil")["uid"] / "workspace"
    _trial(folder, canary)

    assert "work.txt" in room.run("diff", "evil")
    assert "\x1b" not in room.run("diff", "evil")
    room.run("diff", "evil", "--stat")
    assert room.run("task", "apply", done) == "git merge postroom/evil\n"
    room.run("task", "apply", done, "--merge", status=5)  # its attributes name filters
    room.run("status")
    room.run("restart", "evil")
    room.run("diff", "evil", "work.txt")
    room.run("stop", "evil")
    room.run("remove", "evil", "--yes")

    assert not canary.exists(), canary.read_text()
    assert not (folder / "ran").exists(), (folder / "ran").read_text()
    assert git(app, "show", "postroom/evil:work.txt") == "work"
    assert _state(app) == before


def _state(app: Path) -> dict[str, str]:
    """What decides what git runs in the person's repository."""
    names = [app / ".git" / "config", *(app / ".git" / "hooks").iterdir()]
    return {str(name): name.read_text() for name in names}


def _trial(folder: Path, canary: Path) -> None:
    """A plain `git status` in that folder does run what was planted: the test can fail."""
    for name in ("config", "config.worktree", "more"):
        text = (folder / ".git" / name).read_text().replace("/workspace/", f"{folder}/")
        (folder / ".git" / name).write_text(text)
    subprocess.run(
        ["git", f"--git-dir={folder}/.git", f"--work-tree={folder}", "status"],
        env=os.environ | QUIET,
        capture_output=True,
        check=False,
    )
    assert "evil.sh" in canary.read_text()
    canary.unlink()
    (folder / "ran").unlink(missing_ok=True)


TAKEOVERS = {
    "a file that leads out": "rm -rf .git; echo 'gitdir: {app}/.git' > .git",
    "a link to the person's": "rm -rf .git; ln -s {app}/.git .git",
    "objects that lead out": "rm -rf .git/objects; ln -s / .git/objects",
    "refs that lead out": "rm -rf .git/refs .git/HEAD; ln -s / .git/refs; ln -s /etc/passwd .git/HEAD",
    "nothing at all": "rm -rf .git",
    "rubbish": "for f in HEAD index config packed-refs; do head -c 9999 /dev/urandom > .git/$f; done",
    "a loop of objects": "pwd=$PWD; echo $pwd/.git/objects > .git/objects/info/alternates",
}


@pytest.mark.requirement("workspace-git-closed")
@pytest.mark.parametrize("script", TAKEOVERS.values(), ids=TAKEOVERS)
@pytest.mark.anyio
async def test_a_git_directory_that_is_gone_or_leads_elsewhere_costs_the_worker_its_commits_alone(
    bench: Bench, tmp_path: Path, script: str
):
    app = repository(tmp_path / "app")
    before, head = _state(app), git(app, "rev-parse", "main")
    placed = await bench.begin(app)
    await bench.work(placed, script.format(app=app) + "; echo work > work.txt")
    held = await bench.bring()
    assert git(app, "diff", "--name-only", "main", held.branch) == "work.txt"
    assert (_state(app), git(app, "rev-parse", "main")) == (before, head)
    assert git(app, "status", "--porcelain") == ""


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["HEAD", "config", "objects/info/alternates"])
async def test_a_pipe_in_the_workers_git_directory_keeps_nobody_waiting(
    bench: Bench, tmp_path: Path, name: str
):
    placed = await bench.begin(repository(tmp_path / "app"))
    await bench.work(placed, f"echo two > a.txt; rm -f .git/{name}; mkfifo .git/{name}")
    async with asyncio.timeout(30):
        held = await bench.bring()
    assert any("pipes" in note for note in held.left)
    assert git(tmp_path / "app", "show", f"{held.branch}:a.txt") == "two"
