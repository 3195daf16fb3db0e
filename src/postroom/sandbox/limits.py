"""Sets resource limits and becomes the program they are for: `limits.py MEMORY PROCESSES -- argv`.

A script of its own, because limits must be set inside the sandbox (the number of processes is counted
per user namespace) and after the fork, where a threaded Python program must not run Python code.
It is run by its file name and imports the standard library only.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroom.sandbox.port import Limits

# Isolated and without site packages: it starts in a few milliseconds and nothing can be slipped in.
SCRIPT = (sys.executable, "-I", "-S")


def limited(argv: tuple[str, ...], limits: Limits) -> tuple[str, ...]:
    """`argv`, run through this script if `limits` has any."""
    memory, processes = limits.memory, limits.processes
    if memory is None and processes is None:
        return argv
    words = ("-" if value is None else str(value) for value in (memory, processes))
    return (*SCRIPT, __file__, *words, "--", *argv)


def _set(kind: int, text: str) -> None:
    if text != "-":
        resource.setrlimit(kind, (int(text), int(text)))


def main(argv: list[str]) -> None:
    """Set the limits ("-" leaves one alone) and run the program in this process's place."""
    memory, processes, separator, *command = argv
    if separator != "--" or not command:
        raise SystemExit("usage: limits.py MEMORY PROCESSES -- program [argument...]")
    _set(resource.RLIMIT_DATA, memory)
    _set(resource.RLIMIT_NPROC, processes)
    try:
        os.execvp(command[0], command)  # noqa: S606 (no shell is wanted)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        raise SystemExit(127) from error


if __name__ == "__main__":
    main(sys.argv[1:])
