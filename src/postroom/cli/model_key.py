"""Asking the person at the terminal whether a key of the environment is kept (`templates.keys`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from postroom.protocol.template_needs import KeyForm, Needs
from postroom.templates import keys
from postroom.templates.keys import Choice, host

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Credential


def choose(
    needed: Needs,
    values: Mapping[str, str],
    known: Sequence[Credential],
    *,
    store: bool,
    env: Mapping[str, str] | None = None,
) -> Choice:
    """The key for a template, as `keys.choose`; with `store` that of the environment is kept without asking."""
    return keys.choose(needed, values, known, lambda form, name: store or _asked(form, name), env)


def keep(client: Client, choice: Choice) -> None:
    """Store the key of the environment in the post room, if one has to be stored."""
    if said := keys.keep(client, choice):
        click.echo(said, err=True)


def _asked(form: KeyForm, name: str) -> bool:
    if not (sys.stdin and sys.stdin.isatty()):
        return False
    return click.confirm(
        f"Keep {form.variable} as the credential {name!r}, which the gateway sends to {host(form)}?",
        default=True,
        err=True,
    )
