"""A workspace with a real git and a real sandbox, and the worker's own commands in it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from postroom.sandbox.bubblewrap import BubblewrapProvider
from postroom.sandbox.port import SandboxProvider, SandboxSpec
from postroom.settings import Settings
from postroom.workers.reach import Reach
from postroom.workers.workspaces.records import Held
from postroom.workers.workspaces.service import Placed, Workspaces
from postroom.workers.workspaces.syncing import Synced

FREE = Reach("default", free=True)
"""The operator's."""

QUIET = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "anna",
    "GIT_AUTHOR_EMAIL": "anna@example.org",
    "GIT_COMMITTER_NAME": "anna",
    "GIT_COMMITTER_EMAIL": "anna@example.org",
}


def git(folder: Path, *words: str, code: int = 0) -> str:
    """Git as the person runs it."""
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        capture_output=True,
        text=True,
        env=os.environ | QUIET,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout.strip("\n")


def repository(folder: Path, *options: str) -> Path:
    """A repository with one commit of the file `a.txt`."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main", *options)
    # In the repository: a machine for tests knows no person.
    git(folder, "config", "user.name", "Ann")
    git(folder, "config", "user.email", "ann@example.org")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


@dataclass(frozen=True)
class Who:
    uid: str = "c" * 32
    nick: str = "coder"


@dataclass
class Bench:
    """One post room's workspaces, and sandboxes for their workers."""

    folder: Path
    provider: SandboxProvider = field(default_factory=BubblewrapProvider)
    spaces: Workspaces = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.folder / "state"
        self.state.mkdir(parents=True, exist_ok=True)
        self.settings = Settings(state=self.state)
        self.spaces = Workspaces(self.settings)

    def again(self) -> None:
        """The post room of the next process."""
        self.spaces = Workspaces(self.settings)

    def root(self, who: Who) -> Path:
        return self.settings.workers / who.uid

    async def begin(
        self, path: Path, mode: str = "", who: Who | None = None, patterns: tuple[str, ...] = ()
    ) -> Placed:
        who = who or Who()
        planned = await self.spaces.plan(str(path), mode, self.provider, FREE, patterns)
        assert planned is not None
        chosen = (planned.mode, self.provider, None, FREE, patterns)
        return await self.spaces.ready(who, str(path), *chosen)

    async def bring(self, who: Who | None = None) -> Held:
        return await self.spaces.bring(who or Who(), self.provider, FREE)

    async def sync(
        self, *, rebase: bool = False, resolve: bool = False, who: Who | None = None
    ) -> Synced:
        place = (who or Who(), self.provider, FREE)
        return await self.spaces.sync(*place, rebase=rebase, resolve=resolve)

    async def accept(self, commit: str) -> Synced:
        return await self.spaces.accept(Who(), self.provider, FREE, commit)

    async def work(self, placed: Placed, script: str, code: int = 0) -> str:
        """Run a shell script as the worker; returns what it prints."""
        with tempfile.TemporaryDirectory(prefix="work-") as folder:
            state, log = Path(folder, "state"), Path(folder, "log")
            state.mkdir()
            spec = SandboxSpec(
                argv=("/bin/sh", "-e", "-c", script),
                env={"PATH": "/usr/bin:/bin", "HOME": "/home/worker", "GIT_CONFIG_NOSYSTEM": "1"},
                workdir="/workspace",
                workspace=placed.workspace,
                gateway_socket=None,
                stderr_log=log,
                state=state,
                read_only=placed.mounts,
                covered=placed.covered,
            )
            spec = replace(spec, workdir=self.provider.paths(spec).workspace)
            ended = await (await self.provider.start(spec)).wait()
            said = log.read_text()
            assert ended.code == code, said
            return said
