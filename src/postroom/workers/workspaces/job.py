"""One order of `inside.py` or `merging.py`, done in a sandbox of the worker's kind that has no way out."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from postroom.errors import EnvironmentFault, PostroomError, StateUnwritable
from postroom.sandbox.limit_monitor import LimitMonitor
from postroom.sandbox.limits import SCRIPT
from postroom.sandbox.output import tail
from postroom.sandbox.port import Limits, Mount, SandboxPaths, SandboxProvider, SandboxSpec
from postroom.sandbox.template_check import search_path
from postroom.workers.leftovers import delete
from postroom.workers.workspaces import inside, plain
from postroom.workers.workspaces.repository import Module
from postroom_a2a.text import one_line

DEADLINE = 300.0
"""Seconds that one order may take."""
LIMITS = Limits(memory=2 << 30, processes=64, wall_seconds=DEADLINE)
ORDER = "/opt/order"
BORROWED = "/opt/borrowed"
EMPTY = "empty"
"""Name of an empty file that covers another one."""
LARGEST_ANSWER = 1 << 20
LARGEST_BUNDLE = 4 << 30


class JobFailed(EnvironmentFault):
    """An order could not be done in the sandbox."""


@dataclass(frozen=True, slots=True)
class Desk:
    """Where and how orders about one workspace are done.

    Attributes:
        provider: of sandboxes, the same as the worker's.
        workspace: the folder that is worked on.
        objects: folders of objects that it borrows.
        covered: see `SandboxSpec.covered`.
        folder: private, on the host; each order has a folder of its own in it.
        modules: submodules whose objects its sandbox sees, too.
    """

    provider: SandboxProvider
    workspace: Path
    objects: tuple[Path, ...]
    covered: tuple[str, ...]
    folder: Path
    modules: tuple[Module, ...] = ()

    @property
    def lent(self) -> tuple[Path, ...]:
        """All folders of objects that its sandbox sees."""
        inner = (place for module in self.modules for place in module.objects)
        return tuple(dict.fromkeys((*self.objects, *inner)))


def borrowed(objects: Sequence[Path], empty: Path, workspace: Path) -> tuple[Mount, ...]:
    """The mounts of folders of objects, read-only; those in the workspace are seen there.

    Args:
        objects: by their real names.
        empty: an empty file of the host. It covers what a folder says of further ones: those are mounted, too, but
            elsewhere, and git would complain about each.
    """
    mounts: list[Mount] = []
    for number, folder in enumerate(objects):
        place = f"{BORROWED}/{number}"
        if folder.is_relative_to(workspace):
            continue
        mounts.append(Mount(folder, place, judged=True))
        if (folder / "info" / "alternates").is_file():
            mounts.append(Mount(empty, f"{place}/info/alternates"))
    return tuple(mounts)


def places(objects: Sequence[Path], workspace: Path, paths: SandboxPaths) -> list[str]:
    """The paths of folders of objects inside a sandbox of that workspace."""
    found = []
    for number, folder in enumerate(objects):
        if folder.is_relative_to(workspace):
            found.append(f"{paths.workspace}/{folder.relative_to(workspace)}")
        else:
            found.append(paths.mounts[f"{BORROWED}/{number}"])
    return found


def seen(desk: Desk, root: Path) -> tuple[str, ...]:
    """Where a sandbox of the worker sees the objects that its workspace borrows."""
    mounts = borrowed(desk.lent, root / EMPTY, desk.workspace)
    spec = SandboxSpec((), {}, "/", desk.workspace, None, root / "log", read_only=mounts)
    return tuple(places(desk.lent, desk.workspace, desk.provider.paths(spec)))


class Job:
    """The folder of one order; a context that removes it."""

    def __init__(self, desk: Desk, monitor: LimitMonitor) -> None:
        self._desk = desk
        self._monitor = monitor
        self._folder = desk.folder / secrets.token_hex(8)
        self._out = self._folder / "out"

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._make)
        except OSError as error:
            raise StateUnwritable(f"cannot write {error.filename}: {error.strerror}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(PostroomError):
            await asyncio.to_thread(delete, self._folder)

    def _make(self) -> None:
        (self._folder / "order").mkdir(parents=True, mode=0o700)
        self._out.mkdir(mode=0o700)

    @property
    def bundle(self) -> Path:
        """Where `fetched` has the bundle."""
        return self._folder / "bundle"

    async def run(self, order: Mapping[str, Any], script: str = inside.__file__) -> dict[str, Any]:
        """Do `order` by `script` and return the answer, which the worker may have forged.

        Raises:
            JobFailed: it could not be done; the text says why.
        """
        desk = self._desk
        empty = self._folder / EMPTY
        empty.touch()
        mounts = (
            Mount(self._folder / "order", ORDER),
            *borrowed(desk.lent, empty, desk.workspace),
        )
        draft = SandboxSpec(
            argv=(),
            env={},
            workdir="/",
            workspace=desk.workspace,
            gateway_socket=None,
            stderr_log=self._folder / "log",
            state=self._out,
            read_only=mounts,
            judged=bool(desk.covered),  # a folder that the worker writes itself
            covered=desk.covered,
            limits=LIMITS,
        )
        paths = desk.provider.paths(draft)
        where = dict(zip(desk.lent, places(desk.lent, desk.workspace, paths), strict=True))
        modules = [
            asdict(module) | {"objects": [where[place] for place in module.objects]}
            for module in desk.modules
        ]
        whole = dict(order) | {
            "workspace": paths.workspace,
            "out": paths.state,
            "objects": [where[place] for place in desk.objects],
            "modules": modules,
        }
        (self._folder / "order" / "order.json").write_text(json.dumps(whole), encoding="utf-8")
        argv = (
            *(paths.python, *SCRIPT[1:], script),
            *(f"{paths.mounts[ORDER]}/order.json", f"{paths.state}/answer.json"),
        )
        env = {"PATH": search_path(paths.python), "HOME": paths.home, "TMPDIR": paths.tmp}
        spec = replace(draft, argv=argv, env=env, workdir=paths.workspace, ports=paths.ports)
        handle = await self._monitor.start(desk.provider, spec)
        try:
            async with asyncio.timeout(DEADLINE):
                ended = await handle.wait()
        except TimeoutError as error:
            raise JobFailed(f"git in the sandbox took over {DEADLINE:g} s") from error
        finally:
            await handle.stop(0)
        return self._answer(ended.exceeded)

    def _answer(self, exceeded: str) -> dict[str, Any]:
        try:
            with os.fdopen(
                plain.opened(self._out / "answer.json", LARGEST_ANSWER, single=True), "rb"
            ) as file:
                answer = json.loads(file.read(LARGEST_ANSWER))
            if not isinstance(answer, dict):
                raise TypeError("it is not an object")
        except (OSError, ValueError, TypeError, RecursionError) as error:
            said = exceeded or one_line(tail(self._folder / "log"), 300) or str(error)
            raise JobFailed(f"git in the sandbox gave no answer: {said}") from error
        if "error" in answer:
            raise JobFailed(one_line(str(answer["error"]), 500))
        return answer

    def fetched(self) -> bool:
        """Take the bundle out of the folder that the sandbox could write; False if there is none."""
        try:
            source = plain.opened(self._out / "bundle", LARGEST_BUNDLE, single=True)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise JobFailed(f"what came back is no bundle: {error.strerror}") from error
        try:
            # Its owner is gone, so nobody else has it open: it may keep its place on the disk.
            (self._out / "bundle").rename(self.bundle)
            mine = self.bundle.lstat()
            if not os.path.samestat(mine, os.fstat(source)):
                raise JobFailed("what came back is no bundle")
        finally:
            os.close(source)
        return True
