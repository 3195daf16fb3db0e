"""The key of an agent's model: one that the post room keeps, or one of the environment that it is to keep.

The secret goes from the environment to the post room, in the body of one request: never into an argument, an output,
a log or a sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroom.errors import InvalidInput
from postroom.protocol.egress import EgressRule
from postroom.protocol.template_needs import CREDENTIAL, KeyForm, Needs
from postroom.templates.keys import (
    add_command,
    form_of,
    free_name,
    host,
    in_environment,
    stored,
    ways,
)

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Credential


@dataclass(frozen=True, slots=True)
class Choice:
    """The key that a worker gets.

    Attributes:
        values: of the template's parameters.
        form: of a key that has to be stored first, as `name`; None if nothing has to be.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    form: KeyForm | None = None
    name: str = ""


def choose(
    needed: Needs,
    values: Mapping[str, str],
    known: Sequence[Credential],
    agreed: Callable[[KeyForm, str], bool],
    env: Mapping[str, str] | None = None,
) -> Choice:
    """The key for a template.

    Args:
        values: that a person has given; with one for the parameter `credential` they have chosen.
        known: what the post room keeps.
        agreed: whether the person wants the key of the environment kept under that name.
        env: the environment.

    Raises:
        InvalidInput: there is none, or the person does not want it kept; the remedy says how to have one.
    """
    env = os.environ if env is None else env
    if not needed.keys or CREDENTIAL not in needed.parameters:
        return Choice()
    if CREDENTIAL in values:
        return Choice(_unless(values, form_of(needed, values[CREDENTIAL], known).values))
    if (found := stored(needed, known)) is not None:
        form, name = found
        return Choice(_unless(values, {**form.values, CREDENTIAL: name}))
    form = in_environment(needed, env)
    if form is None:
        raise InvalidInput(f"no key for {host(needed.keys[0])} is kept", remedy=ways(needed, env))
    name = free_name(form.name, known)
    if not agreed(form, name):
        raise InvalidInput(
            f"no key for {host(form)} is kept, and {form.variable} is set here",
            remedy=f"spawn with --store-key, or first: {add_command(form, env, name)}",
        )
    return Choice(_unless(values, {**form.values, CREDENTIAL: name}), form, name)


def keep(client: Client, choice: Choice, env: Mapping[str, str] | None = None) -> str:
    """Store the key of the environment in the post room, if one has to be stored; returns what to say then."""
    form = choice.form
    if form is None:
        return ""
    env = os.environ if env is None else env
    rule = EgressRule.parse(form.url)
    client.add_credential(
        choice.name,
        str(EgressRule(rule.scheme, rule.host, rule.port)),
        env[form.variable].strip(),
        path="" if rule.path == "/" else rule.path,
        header=form.header,
    )
    return f"{form.variable} is kept as the credential {choice.name!r}: only the gateway sends it"


def _unless(given: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in given}
