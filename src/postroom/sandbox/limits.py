"""Sets resource limits and becomes the program: `limits.py MEMORY PROCESSES FILE -- argv`.

A script, since the limits must be set inside the sandbox (the kernel counts processes per user namespace) and after the
fork, where a threaded Python program must not run Python code. It runs by its file name and imports the standard
library only.

These limits are the kernel's own stop, each for a single process or a single file. The control group or
`postroom.sandbox.limit_monitor` bounds the sandbox as a whole.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroom.sandbox.port import SandboxSpec

# Isolated and without site packages: it starts in milliseconds, and no other module can get in.
SCRIPT = (sys.executable, "-I", "-S")

MARGIN = 2
"""The kernel refuses processes at this multiple of the limit, since the monitor sees an excess but no refusal."""


def limited(spec: SandboxSpec, *, alone: bool) -> tuple[str, ...]:
    """The program of `spec`, run through this script if it has a limit to set.

    Args:
        spec: limits that its control group keeps are not set again.
        alone: it has a user namespace, so the kernel does not count processes outside.
    """
    limits, grouped = spec.limits, spec.group is not None
    # RLIMIT_DATA and not RLIMIT_AS: JavaScript engines reserve far more address space than they use.
    memory = None if grouped else limits.memory
    processes = limits.processes * MARGIN if limits.processes and alone and not grouped else None
    if memory is None and processes is None and limits.disk is None:
        return spec.argv
    values = (memory, processes, limits.disk)
    words = ("-" if value is None else str(value) for value in values)
    return (*SCRIPT, __file__, *words, "--", *spec.argv)


def _set(kind: int, text: str) -> None:
    if text != "-":
        resource.setrlimit(kind, (int(text), int(text)))


def main(argv: list[str]) -> None:
    """Set the limits ("-" leaves one alone) and run the program in this process's place."""
    memory, processes, file, separator, *command = argv
    if separator != "--" or not command:
        raise SystemExit("usage: limits.py MEMORY PROCESSES FILE -- program [argument...]")
    _set(resource.RLIMIT_DATA, memory)
    _set(resource.RLIMIT_NPROC, processes)
    _set(resource.RLIMIT_FSIZE, file)
    try:
        os.execvp(command[0], command)  # noqa: S606 (no shell is wanted)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        raise SystemExit(127) from error


if __name__ == "__main__":
    main(sys.argv[1:])
