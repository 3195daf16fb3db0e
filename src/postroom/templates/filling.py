"""The values of a template's parameters that stand for its program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from postroom.errors import InvalidTemplate
from postroom.protocol.template_needs import MOUNTS, PROGRAM, SEARCH, Needs, needs
from postroom.templates.programs import Machine, Program, find

_OWN = (PROGRAM, SEARCH, MOUNTS)


def values_of(program: Program) -> dict[str, str]:
    """The values for a program that was found."""
    return {
        PROGRAM: str(program.real),
        SEARCH: "".join(f"{folder}:" for folder in program.search),
        MOUNTS: "\n".join(map(str, program.mounts)),
    }


def program_values(
    needed: Needs, values: Mapping[str, str], machine: Machine | None = None
) -> dict[str, str]:
    """The values for the program that a template needs; {} for a template without one, or if a person names all.

    Args:
        values: that a person has given. A program that they name is looked at where it is.

    Raises:
        NotFound: it is not installed; the remedy installs it.
        EnvironmentFault: it cannot be run here.
        InvalidTemplate: the template has no parameter for it.
    """
    if not needed.program or MOUNTS in values:
        return {}
    for name in _OWN:
        if name not in needed.parameters:
            raise InvalidTemplate(
                f"the template has [program] and no parameter {name!r}",
                remedy=f'declare it below [overrides]: {name} = ""',
            )
    named = values.get(PROGRAM) or needed.program
    found = values_of(find(named, machine or Machine.here(), needed.install))
    return {name: value for name, value in found.items() if name == PROGRAM or name not in values}


def refound(text: str, values: Mapping[str, str]) -> dict[str, str]:
    """The values of a worker, with the program's new place where the old one is gone, as after an update.

    Raises:
        NotFound, EnvironmentFault: it is not there any more.
    """
    kept = dict(values)
    places = [kept.get(PROGRAM, ""), *kept.get(MOUNTS, "").splitlines()]
    if all(Path(place).exists() for place in places if place.startswith("/")):
        return kept
    needed = needs(text, values)
    return kept | (program_values(needed, {}) if needed.program else {})
