"""How the end of a sandbox is told."""

from __future__ import annotations

import time

import pytest

from postroom.protocol.presence import OUT_OF_MEMORY, WorkerState
from postroom.sandbox.port import ExitStatus, Limits
from postroom.sidecar import main as sidecar
from postroom.sidecar.config import ENVIRONMENT
from postroom.store.workers import RUNNING, STOPPED
from postroom.workers.run import exceeded
from postroom.workers.status import state_of

MEMORY = Limits(memory=64 << 20)


@pytest.mark.parametrize(
    "ended, limits, said",
    [
        (
            ExitStatus(137, exceeded="time limit of 1 s exceeded"),
            MEMORY,
            "time limit of 1 s exceeded",
        ),
        (ExitStatus(OUT_OF_MEMORY), MEMORY, "memory limit of 64 MiB exceeded"),
        (ExitStatus(OUT_OF_MEMORY), Limits(), ""),
        (ExitStatus(1), MEMORY, ""),
    ],
)
def test_the_limit_is_told_by_the_guard_or_by_the_sidecar_itself(
    ended: ExitStatus, limits: Limits, said: str
):
    assert exceeded(ended, limits) == said


@pytest.mark.parametrize(
    "failure", [MemoryError(), ExceptionGroup("", [ValueError(), MemoryError()])]
)
def test_a_sidecar_without_memory_says_so_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
):
    def load(_: object) -> None:
        raise failure

    monkeypatch.setenv(ENVIRONMENT, "/nowhere")
    monkeypatch.setattr(sidecar, "load", load)

    assert sidecar.main() == OUT_OF_MEMORY


def test_a_worker_that_a_former_post_room_ended_for_a_limit_has_failed_until_somebody_acts():
    why = "time limit of 1 s exceeded"

    assert state_of(RUNNING, None, None, time.time(), why) == (WorkerState.FAILED, why)
    assert state_of(STOPPED, None, None, time.time(), why) == (WorkerState.STOPPED, "")
