"""The sandbox of a worker, and the least level of its wall: what a template may ask for, and what only a person may.

A template may ask for a stronger wall than the post room demands. A weaker one is for the person who spawns
(`--isolation`, `--sandbox`) or who runs the post room (`up --sandbox`, its settings).
"""

from __future__ import annotations

from dataclasses import dataclass

from postroom.errors import Forbidden, InvalidInput
from postroom.protocol.template import Template
from postroom.sandbox.port import Level
from postroom.sandbox.select import AUTO, stated_level


@dataclass(frozen=True, slots=True)
class Demand:
    """The sandbox to start a worker in, and the least level that it must have proven."""

    sandbox: str
    at_least: Level


def level_of(name: str) -> Level:
    """The level called `name`."""
    try:
        return Level(name)
    except ValueError:
        raise InvalidInput(
            f"there is no isolation {name!r}", remedy="one of " + ", ".join(Level)
        ) from None


def demand(
    template: Template, *, sandbox: str, isolation: str, default_sandbox: str, default: str
) -> Demand:
    """The sandbox and the least level for a worker of `template`.

    Args:
        sandbox: named by the person who spawns, "" for none.
        isolation: the level that this person accepts, "" if they named none.
        default_sandbox: the post room's own.
        default: the level that the post room demands.

    Raises:
        Forbidden: the template asks for a weaker wall than a person has allowed.
    """
    chosen = sandbox or template.sandbox or default_sandbox
    stated = stated_level(chosen)
    if isolation:
        at_least = level_of(isolation)
    else:
        # To name a sandbox is to ask for its level; the operator's default does so for all workers.
        at_least = _lowered(_lowered(level_of(default), default_sandbox), sandbox or AUTO)
    if not sandbox and stated is not None and stated.weaker_than(at_least):
        raise _forbidden(f"the sandbox {chosen!r}, which is {_called(stated)}", stated)
    if template.isolation and not isolation and sandbox in {"", AUTO}:
        wanted = level_of(template.isolation)
        if wanted.weaker_than(at_least):
            raise _forbidden(f"the isolation {wanted}", wanted)
        at_least = wanted
    return Demand(chosen, at_least)


def _lowered(level: Level, sandbox: str) -> Level:
    stated = stated_level(sandbox)
    return stated if stated is not None and stated.weaker_than(level) else level


def _called(level: Level) -> str:
    return "no wall" if level is Level.NONE else f"a {level} wall"


def _forbidden(what: str, level: Level) -> Forbidden:
    option = "--sandbox none" if level is Level.NONE else f"--isolation {level}"
    return Forbidden(
        f"the template asks for {what}: only a person may allow that",
        remedy=f"read the template; if it may do all that this allows: {option}",
    )
