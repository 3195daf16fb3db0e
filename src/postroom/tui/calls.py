"""Calls of the API, made in threads: the client blocks, the screen must not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 8
"""Calls at a time; further ones wait."""


class Calls:
    """Runs blocking functions; `close` waits for none of them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="screen-call")

    def run(self, call: Callable[[], T]) -> Awaitable[T]:
        """What `call` returns or raises, awaited; start it from a Textual worker."""
        return asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """Take no more; calls that wait are dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)
