"""The keys that a template's agent can use: those that a post room keeps, or one of the environment that it is to keep.

The secret goes from the environment to the post room, in the body of one request: never into an argument, an output,
a log or a sandbox.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroom.errors import InvalidInput
from postroom.protocol.egress import EgressRule
from postroom.protocol.shapes import Credential
from postroom.protocol.template_needs import CREDENTIAL, KeyForm, Needs

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient
    from postroom.protocol.shapes import Credential


def stored(needed: Needs, known: Sequence[Credential]) -> tuple[KeyForm, str] | None:
    """The first form of which the post room keeps a key, and that key's name; None if it keeps none."""
    for form in needed.keys:
        fitting = [each["name"] for each in known if _fits(form, each)]
        if fitting:
            return form, form.name if form.name in fitting else fitting[0]
    return None


def in_environment(needed: Needs, env: Mapping[str, str]) -> KeyForm | None:
    """The first form of which the environment has a key, None if it has none."""
    return next((form for form in needed.keys if env.get(form.variable, "").strip()), None)


def form_of(needed: Needs, name: str, known: Sequence[Credential]) -> KeyForm:
    """The form that a named credential has; the first one for a name that is not known."""
    header = next((each["header"] for each in known if each["name"] == name), "")
    return next((form for form in needed.keys if _same(form.header, header)), needed.keys[0])


def free_name(name: str, known: Sequence[Credential]) -> str:
    """`name`, with a number at its end if a credential is called so."""
    taken = {each["name"] for each in known}
    names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 2)))
    return next(each for each in names if each not in taken)


def add_command(form: KeyForm, env: Mapping[str, str], name: str = "") -> str:
    """The command that stores a key of that form, from the environment if that has it."""
    rule = EgressRule.parse(form.url)
    words = ["postroom", "credential", "add", name or form.name, "--host"]
    words.append(str(rule).removeprefix("https://"))
    if form.header != "Authorization: Bearer {secret}":
        words += ["--header", form.header]
    if form.variable and env.get(form.variable):
        words += ["--from-env", form.variable]
    return shlex.join(words)


def ways(needed: Needs, env: Mapping[str, str]) -> str:
    """Every way to have a key, for people."""
    return "; or: ".join(
        add_command(form, env) + (f" ({form.obtain})" if form.obtain else "")
        for form in needed.keys
    )


def host(form: KeyForm) -> str:
    """The host that a key is for."""
    return place(form.url)


def place(url: str) -> str:
    """The host of a rule of egress, as people name it."""
    return str(EgressRule.parse(url)).partition("://")[2]


def _fits(form: KeyForm, each: Credential) -> bool:
    wanted, has = EgressRule.parse(form.url), EgressRule.parse(each["url"])
    where = (wanted.scheme, wanted.host, wanted.port) == (has.scheme, has.host, has.port)
    return where and not each["workers"] and _same(form.header, each["header"])


def _same(one: str, other: str) -> bool:
    """Whether two header lines are the same: names without regard to case."""
    (name, _, value), (its, _, said) = one.partition(":"), other.partition(":")
    return name.lower() == its.lower() and value.strip() == said.strip()


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


async def keep(client: AsyncClient, choice: Choice, env: Mapping[str, str] | None = None) -> str:
    """Store the key of the environment in the post room, if one has to be stored; returns what to say then."""
    form = choice.form
    if form is None:
        return ""
    env = os.environ if env is None else env
    rule = EgressRule.parse(form.url)
    await client.add_credential(
        choice.name,
        str(EgressRule(rule.scheme, rule.host, rule.port)),
        env[form.variable].strip(),
        path="" if rule.path == "/" else rule.path,
        header=form.header,
    )
    return f"{form.variable} is kept as the credential {choice.name!r}: only the gateway sends it"


def _unless(given: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in given}
