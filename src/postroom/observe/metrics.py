"""Metrics: counters that parts keep, values that are read when somebody asks, and their text for Prometheus.

    sent = metrics.counter("postroom_push_deliveries_total", "Notifications by how they ended.", "org", "outcome")
    sent.add("default", "delivered")

A counter begins at 0 with the process. A label has few values, all of which our own code names: no id is ever one. What
comes beyond `MAX_SERIES` values of a metric is counted as `other`, so that a mistake costs no memory.

The text is Prometheus' exposition format, version 0.0.4. What this process uses of the machine (`process`) has the
names that Prometheus' own clients use.
"""

from __future__ import annotations

import math
import os
import re
import resource
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MAX_SERIES = 2000
"""Combinations of labels of one counter: routes, methods and statuses make the most."""

COUNTER, GAUGE, SUMMARY = "counter", "gauge", "summary"

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_OTHER = "other"

Labels = tuple[str, ...]

_STARTED = time.time()


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its values.

    Attributes:
        kind: COUNTER, GAUGE or SUMMARY; a summary has two values, its sum and its count.
        labels: their names.
        values: by the values of the labels.
    """

    name: str
    kind: str
    meaning: str
    labels: Labels = ()
    values: Mapping[Labels, float | tuple[float, int]] = field(default_factory=dict)

    def lines(self) -> Iterable[str]:
        """Its lines in the text format."""
        yield f"# HELP {self.name} {_escaped(self.meaning, quotes=False)}"
        yield f"# TYPE {self.name} {self.kind}"
        for given, value in self.values.items():
            shown = _shown(self.labels, given)
            if isinstance(value, tuple):
                yield f"{self.name}_sum{shown} {_number(value[0])}"
                yield f"{self.name}_count{shown} {_number(value[1])}"
            else:
                yield f"{self.name}{shown} {_number(value)}"


def gauge(name: str, meaning: str, value: float | None) -> Family:
    """A value without labels that was just read; None where it could not be."""
    return Family(name, GAUGE, meaning, values={} if value is None else {(): value})


class Counter:
    """A number for each combination of labels, which only grows; `add` is for the event loop's thread."""

    __slots__ = ("_values", "labels", "meaning", "name")

    def __init__(self, name: str, meaning: str, labels: Labels = ()) -> None:
        self.name, self.meaning, self.labels = name, meaning, labels
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *given: str, n: float = 1) -> None:
        """Count `n` more for these values of the labels."""
        values = self._values
        if given in values:
            values[given] += n
        else:
            given = _kept_under(self, given, len(values))
            values[given] = values.get(given, 0) + n

    def family(self) -> Family:
        """Its values now."""
        return Family(self.name, COUNTER, self.meaning, self.labels, dict(self._values))


class Summary:
    """How often something was measured, and the sum of what was measured, for each combination of labels."""

    __slots__ = ("_values", "labels", "meaning", "name")

    def __init__(self, name: str, meaning: str, labels: Labels = ()) -> None:
        self.name, self.meaning, self.labels = name, meaning, labels
        self._values: dict[Labels, tuple[float, int]] = {} if labels else {(): (0.0, 0)}

    def note(self, *given: str, value: float) -> None:
        """Count one more measurement."""
        known = self._values.get(given)
        if known is None:
            given = _kept_under(self, given, len(self._values))
            known = self._values.get(given, (0.0, 0))
        self._values[given] = (known[0] + value, known[1] + 1)

    def family(self) -> Family:
        """Its values now."""
        return Family(self.name, SUMMARY, self.meaning, self.labels, dict(self._values))


def _kept_under(metric: Counter | Summary, given: Labels, kept: int) -> Labels:
    """The labels under which a new value is kept, where there are that many."""
    if len(given) != len(metric.labels):
        raise TypeError(f"{metric.name} has the labels {metric.labels}, not {given}")
    return given if kept < MAX_SERIES else (_OTHER,) * len(given)


M = TypeVar("M", Counter, Summary)


class Metrics:
    """The counters of one post room, by name."""

    def __init__(self) -> None:
        self._kept: dict[str, Counter | Summary] = {}

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        """The counter of that name, which ends in `_total`; one for all who ask for it."""
        if not name.endswith("_total"):
            raise ValueError(f"a counter's name ends in _total: {name}")
        return self._one(Counter(_checked(name, labels), meaning, labels))

    def summary(self, name: str, meaning: str, *labels: str) -> Summary:
        """The summary of that name; one for all who ask for it."""
        return self._one(Summary(_checked(name, labels), meaning, labels))

    def _one(self, made: M) -> M:
        known = self._kept.setdefault(made.name, made)
        if not isinstance(known, type(made)) or known.labels != made.labels:
            raise ValueError(f"two metrics have the name {made.name}")
        return known

    def families(self) -> list[Family]:
        """All of them with their values now."""
        return [each.family() for each in self._kept.values()]


def text(families: Iterable[Family]) -> str:
    """What a scraper reads. Families of one name, as of several organisations, become one."""
    joined: dict[str, Family] = {}
    for each in families:
        known = joined.get(each.name)
        if known is None:
            joined[each.name] = each
            continue
        if (known.kind, known.labels) != (each.kind, each.labels):
            raise ValueError(f"two metrics have the name {each.name}")
        joined[each.name] = Family(
            each.name, each.kind, each.meaning, each.labels, {**known.values, **each.values}
        )
    return "".join(f"{line}\n" for each in joined.values() for line in each.lines())


def _checked(name: str, labels: Sequence[str]) -> str:
    for each in (name, *labels):
        if not _NAME.fullmatch(each):
            raise ValueError(f"no name of a metric or a label: {each!r}")
    return name


def _shown(names: Labels, given: Labels) -> str:
    pairs = [f'{name}="{_escaped(value)}"' for name, value in zip(names, given, strict=True)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(value: str, *, quotes: bool = True) -> str:
    value = value.replace("\\", "\\\\").replace("\n", "\\n")
    return value.replace('"', '\\"') if quotes else value


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


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
