"""The keys that a template's agent can use, and which of them a post room keeps. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from postroom.protocol.egress import EgressRule
from postroom.protocol.shapes import Credential
from postroom.protocol.template_needs import KeyForm, Needs


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
