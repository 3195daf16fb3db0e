"""The program of a coding agent, made of the sidecar's configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.errors import PostroomError
from postroom.observe import get_logger
from postroom.protocol.alerts import RaiseAlert
from postroom.sidecar.config import SidecarConfig
from postroom.sidecar.status import StatusReporter
from postroom.sidecar.turns.approvals import Approvals, Rules
from postroom.sidecar.turns.base import Base
from postroom.sidecar.turns.budget import Budget
from postroom.sidecar.turns.desk import Desk, Limits
from postroom.sidecar.turns.instructions import instructions
from postroom.sidecar.turns.policy import Policy
from postroom.sidecar.turns.processes import Place
from postroom.sidecar.turns.program import TurnProgram
from postroom.sidecar.turns.servers import inside
from postroom.sidecar.turns.state import StateFile
from postroom.sidecar.turns.steering import Steering
from postroom.sidecar.variables import filled

STEERING = "steering"
"""Name of the file with the answers of people in the state folder."""

BUDGET = "usage"
"""Name of the file with the agent's usage there."""

TOLD = "base"
"""Name of the file with what it was told of its person's branch there."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the program needs beside its configuration.

    Attributes:
        env: the agent's environment.
        outside: URL of the egress relay, "" for none.
        whoami: as the local API answers it.
        find: lists the other agents; raises PostroomError.
        record: takes an event for the control plane.
    """

    env: Mapping[str, str]
    outside: str
    whoami: Mapping[str, Any]
    find: Callable[[], Awaitable[list[dict[str, Any]]]]
    record: Callable[[dict[str, Any]], None]
    status: StatusReporter
    raise_alert: RaiseAlert


def turn_program(config: SidecarConfig, around: Surroundings) -> tuple[TurnProgram, Steering]:
    """The program of a worker whose agent works in turns, and what people tell it.

    Raises:
        StateUnwritable: the agent's home cannot be made.
    """
    agent, turns = config.agent, config.agent.turns
    steering = Steering(StateFile(config.state / STEERING))
    policy = Policy(
        turns.auto_approve,
        turns.auto_deny,
        turns.autonomous,
        turns.rules,
        turns.autonomy,
        agent.cwd or config.workspace,
    )
    steering.allowed = policy.allow
    rules = Rules(
        policy,
        turns.approval_default,
        turns.approval_timeout,
        people=config.interactive,
    )
    desk = Desk(
        approvals=Approvals(config.uid, rules, steering),
        steering=steering,
        budget=Budget(StateFile(config.state / BUDGET), turns.budget_tokens, turns.budget_usd),
        base=Base(
            Path(config.standing) if config.standing else None, StateFile(config.state / TOLD)
        ),
        limits=Limits(turns.stall_after, turns.turn_limit, config.cancel_grace),
        status=around.status,
        raise_alert=around.raise_alert,
        record=around.record,
    )
    place = Place(
        env=around.env,
        cwd=agent.cwd or config.workspace,
        state=config.state,
        command=tuple(filled(word, around.env) for word in agent.command),
        servers=inside(turns.servers, around.env, around.outside),
        instructions=_told(around) if turns.instructions else None,
        unasked=policy.unasked,
    )
    program = TurnProgram(agent, place, desk, status=around.status, raise_alert=around.raise_alert)
    return program, steering


def _told(around: Surroundings) -> Callable[[], Awaitable[str]]:
    async def told() -> str:
        try:
            colleagues = await around.find()
        except PostroomError as error:
            _log.info("who else is there is not known: %s", error)
            colleagues = []
        return instructions(around.whoami, colleagues)

    return told
