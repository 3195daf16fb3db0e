"""The agent's standard input: a pipe of one page, so that "writable" means "all of it was read".

`fcntl(F_SETPIPE_SZ)` makes a pipe hold a single buffer, and poll(2) reports such a pipe as writable only when
the reader has emptied it (pipe(7)). That is how `delivered` can be said without asking the agent.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import select
import termios

PAGE = 4096

_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 0)


class AgentInput:
    """Write end of the pipe; one writer at a time, which its user sees to.

    Where the system cannot make a pipe of one page, `drained` still looks at the number of bytes in the pipe,
    but may notice late.
    """

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        if _F_SETPIPE_SZ:
            fcntl.fcntl(self._write_end, _F_SETPIPE_SZ, PAGE)
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def close_read_end(self) -> None:
        """Close our copy of the agent's end, so that its end is noticed; idempotent."""
        if self.read_end >= 0:
            os.close(self.read_end)
            self.read_end = -1

    async def write(self, data: bytes) -> None:
        """Put all of `data` into the pipe, as fast as it is read.

        Raises:
            BrokenPipeError: nobody will read it.
        """
        rest = memoryview(data)
        while rest:
            if self._closed:
                raise BrokenPipeError
            try:
                written = os.write(self._write_end, rest)
            except BlockingIOError:
                await self._writable()
            else:
                rest = rest[written:]

    async def drained(self) -> None:
        """Wait until everything written was read.

        Raises:
            BrokenPipeError: the reader went away before it had read everything.
        """
        while self._unread():
            if self._abandoned():
                raise BrokenPipeError
            await self._writable()

    def close(self) -> None:
        """Close the pipe: the agent sees the end of its input; whoever waits gets a BrokenPipeError."""
        self.close_read_end()
        if self._closed:
            return
        self._closed = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(BrokenPipeError())
        asyncio.get_running_loop().remove_writer(self._write_end)
        os.close(self._write_end)

    def _unread(self) -> int:
        if self._closed:
            raise BrokenPipeError
        count = array.array("i", [0])
        fcntl.ioctl(self._write_end, termios.FIONREAD, count)
        return count[0]

    def _abandoned(self) -> bool:
        poller = select.poll()
        poller.register(self._write_end, select.POLLOUT)
        return any(events & select.POLLERR for _, events in poller.poll(0))

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiter = waiter
        loop.add_writer(self._write_end, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if not self._closed:
                loop.remove_writer(self._write_end)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
