"""What this process uses of the machine, under the names that Prometheus' own clients use."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

from postroom.observe.metrics import COUNTER, Family, Labels, gauge

_STARTED = time.time()


def process() -> list[Family]:
    """Processor time, memory and open files of this process; what a system does not tell is left out."""
    times = os.times()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    cpu: dict[Labels, float] = {(): times.user + times.system}
    return [
        Family("process_cpu_seconds_total", COUNTER, "Seconds of processor time.", values=cpu),
        gauge("process_resident_memory_bytes", "Bytes of memory in use.", _resident()),
        gauge("process_open_fds", "Open files and connections.", _open_files()),
        gauge("process_max_fds", "The most that may be open.", None if soft < 0 else float(soft)),
        gauge(
            "process_start_time_seconds", "When it started, in seconds since the epoch.", _STARTED
        ),
    ]


def _resident() -> float | None:
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:  # not Linux: the most that it ever was
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(most if sys.platform == "darwin" else most * 1024)
    return int(pages) * float(os.sysconf("SC_PAGE_SIZE"))


def _open_files() -> float | None:
    try:
        return float(len(os.listdir("/dev/fd")))  # noqa: PTH208 (counted, not looked at)
    except OSError:
        return None
