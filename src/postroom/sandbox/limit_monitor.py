"""The monitor of running sandboxes: it ends one that goes over a limit, and the end names the limit.

The kernel reports what a control group keeps. The monitor measures the rest from outside, once a second or less often
(measuring takes at most a twentieth of the time), so a sandbox can overshoot a limit between two measurements.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import replace

from postroom.errors import EnvironmentFault, leaves
from postroom.sandbox import cgroups, usage
from postroom.sandbox.cgroups import Group, Groups
from postroom.sandbox.port import (
    ExitStatus,
    FarHandle,
    FarProvider,
    Level,
    Limits,
    SandboxHandle,
    SandboxProvider,
    SandboxSpec,
)
from postroom.sandbox.reaped import runtime_folder

PERIOD = 1.0
"""Seconds between two measurements."""
LOAD = 20
"""A measurement that took a second is repeated after so many."""
MIB = 1024 * 1024


class LimitMonitor:
    """Starts sandboxes and watches over their limits; one monitor for many sandboxes, which share its measurements.

    Args:
        period: seconds between two measurements.
        find: finds the place for control groups; called for the first sandbox that wants one.
    """

    def __init__(
        self, *, period: float = PERIOD, find: Callable[[], Groups | None] = cgroups.find
    ) -> None:
        self._period = period
        self._find = find
        self._groups: Groups | None = None
        self._looked = False
        self._one = asyncio.Lock()
        self._table: usage.Table = {}
        self._table_at = 0.0
        self._took = 0.0

    async def start(
        self,
        provider: SandboxProvider,
        spec: SandboxSpec,
        *,
        elapsed: float = 0.0,
        grace: float = 0.0,
    ) -> LimitedHandle:
        """Start `spec` by `provider`.

        Args:
            elapsed: seconds of its time that have passed already.
            grace: seconds that the program has to end by itself when its time is over.

        Raises:
            InvalidInput, SandboxUnavailable: see `SandboxProvider.start`.
        """
        limits = spec.limits
        if isinstance(provider, FarProvider):
            # Its processes are not on this machine: the far provider keeps their limits.
            handle = await provider.start(spec)
            return LimitedHandle(
                self, handle, spec, None, provider.unenforced(limits), elapsed, grace, far=True
            )
        group = await self._group(limits)
        try:
            if group is not None:
                spec = replace(spec, group=group.folder)
            handle = await provider.start(spec)
        except BaseException:
            if group is not None:
                await group.remove()
            raise
        return LimitedHandle(
            self, handle, spec, group, self._unenforced(limits, group), elapsed, grace
        )

    async def _group(self, limits: Limits) -> Group | None:
        if limits.memory is None and limits.processes is None and limits.cpu_percent is None:
            return None
        async with self._one:
            if not self._looked:
                self._groups = await asyncio.to_thread(self._find)
                self._looked = True
        return None if self._groups is None else self._groups.make(limits)

    def _unenforced(self, limits: Limits, group: Group | None) -> tuple[str, ...]:
        found = []
        if group is None and not usage.READABLE:
            found += ["memory_mb"] if limits.memory else []
            found += ["processes"] if limits.processes else []
        shares = group is not None and self._groups is not None and self._groups.cpu
        return (*found, "cpu_percent") if limits.cpu_percent and not shares else tuple(found)

    async def processes(self) -> usage.Table:
        """The machine's processes, at most half a period old."""
        loop = asyncio.get_running_loop()
        async with self._one:
            if loop.time() - self._table_at > self._period / 2:
                begun = loop.time()
                self._table = await asyncio.to_thread(usage.table)
                self._table_at = loop.time()
                self._took = self._table_at - begun
        return self._table

    async def pause(self, took: float = 0.0) -> None:
        """Wait until the next measurement is due, after one that took so many seconds."""
        await asyncio.sleep(max(self._period, LOAD * max(took, self._took)))


class LimitedHandle(SandboxHandle):
    """A running sandbox with limits; see `SandboxHandle`. Its end names the limit that was exceeded.

    unenforced: the limits, in the template's words, that nothing here keeps.
    """

    def __init__(
        self,
        monitor: LimitMonitor,
        handle: SandboxHandle,
        spec: SandboxSpec,
        group: Group | None,
        unenforced: tuple[str, ...],
        elapsed: float,
        grace: float,
        *,
        far: bool = False,
    ) -> None:
        self.unenforced = unenforced
        self._far = far
        self._monitor = monitor
        self._handle = handle
        self._limits = spec.limits
        self._group = group
        folders = (spec.workspace, spec.state, runtime_folder(spec))
        self._folders = [folder for folder in folders if folder is not None]
        self._exceeded = ""
        self._end = asyncio.create_task(
            self._run(elapsed, grace), name=f"limits of sandbox {handle.pid}"
        )

    @property
    def pid(self) -> int:
        return self._handle.pid

    @property
    def far(self) -> FarHandle | None:
        """Its further abilities where it runs on another machine, else None."""
        return self._handle if isinstance(self._handle, FarHandle) else None

    @property
    def level(self) -> Level:
        return self._handle.level

    async def wait(self) -> ExitStatus:
        """See `SandboxHandle.wait`; with the limit that was exceeded."""
        return await asyncio.shield(self._end)

    async def stop(self, grace: float) -> ExitStatus:
        await self._handle.stop(grace)
        return await self.wait()

    def kill(self) -> None:
        self._handle.kill()

    async def _run(self, elapsed: float, grace: float) -> ExitStatus:
        end = asyncio.ensure_future(self._handle.wait())
        try:
            async with asyncio.TaskGroup() as tasks:
                looks = [tasks.create_task(look) for look in self._looks(elapsed, grace)]
                await asyncio.wait({end})
                for look in looks:
                    look.cancel()
            ended = await end
            if self._group is not None and self._group.out_of_memory:
                self._exceeded = self._exceeded or memory_exceeded(self._limits.memory)
            return replace(ended, exceeded=self._exceeded)
        except BaseException as error:
            self._handle.kill()  # no sandbox goes on without its limits
            if not isinstance(error, BaseExceptionGroup):
                raise
            await asyncio.wait({end})
            why = ", ".join(str(leaf) for leaf in leaves(error))
            raise EnvironmentFault(f"cannot enforce its limits any longer: {why}") from error
        finally:
            if self._group is not None:
                await self._group.remove()

    def _looks(self, elapsed: float, grace: float) -> list[Coroutine[None, None, None]]:
        limits, looks = self._limits, []
        if limits.wall_seconds is not None:
            looks.append(self._look_at_time(limits.wall_seconds, elapsed, grace))
        if self._far:
            return looks
        if limits.disk is not None:
            looks.append(self._look_at_disk(limits.disk))
        if self._group is not None:
            looks += [self._look_at_group(self._group)] if limits.processes is not None else []
        elif usage.READABLE and not (limits.memory is limits.processes is None):
            looks.append(self._look_at_processes())
        return looks

    async def _look_at_time(self, limit: float, elapsed: float, grace: float) -> None:
        await asyncio.sleep(max(0.0, limit - elapsed))
        self._exceeded = self._exceeded or f"time limit of {limit:g} s exceeded"
        await self._handle.stop(grace)

    async def _look_at_disk(self, limit: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            used = await asyncio.to_thread(usage.disk, self._folders, limit)
            if used > limit:
                why = "" if used < math.inf else ": its folders cannot be counted"
                return self._end_for(f"disk limit of {_mib(limit)} exceeded{why}")
            await self._monitor.pause(loop.time() - begun)

    async def _look_at_group(self, group: Group) -> None:
        while not group.out_of_processes:
            await self._monitor.pause()
        self._end_for(_processes_exceeded(self._limits.processes))

    async def _look_at_processes(self) -> None:
        limits = self._limits
        while True:
            found = usage.below(await self._monitor.processes(), self.pid)
            threads = sum(count for _, count in found)
            if limits.processes is not None and threads > limits.processes:
                return self._end_for(_processes_exceeded(limits.processes))
            if limits.memory is not None:
                pids = [pid for pid, _ in found]
                if await asyncio.to_thread(usage.memory, pids, limits.memory) > limits.memory:
                    return self._end_for(memory_exceeded(limits.memory))
            await self._monitor.pause()

    def _end_for(self, why: str) -> None:
        self._exceeded = self._exceeded or why
        self._handle.kill()


def memory_exceeded(limit: int | None) -> str:
    """The end of a sandbox that ran out of so many bytes of memory, for people."""
    return f"memory limit of {_mib(limit or 0)} exceeded"


def _processes_exceeded(limit: int | None) -> str:
    return f"limit of {limit} processes exceeded"


def _mib(size: int) -> str:
    return f"{size / MIB:g} MiB"
