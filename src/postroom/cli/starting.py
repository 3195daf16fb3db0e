"""The start of a worker: the key for its model, the credentials that are kept, and reports about it."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from postroom.cli.options import chosen_org, connect, state_folder
from postroom.errors import NotRunning, SandboxUnavailable
from postroom.lines.workers import notes
from postroom.protocol.template_needs import KeyForm, Needs
from postroom.templates import keys
from postroom.templates.keys import Choice, host
from postroom.view.workers import ended
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from postroom.client.http import Client
    from postroom.gateway.credentials import BoundCredential
    from postroom.protocol.shapes import Credential, Worker


@contextmanager
def details(verbose: bool) -> Generator[None]:
    """With `verbose`, show why there is no sandbox."""
    try:
        yield
    except SandboxUnavailable as error:
        for line in error.details if verbose else ():
            click.echo(one_line(line), err=True)
        raise


def report(worker: Worker) -> None:
    """Report where it works, what it has not got, and an agent that has not started.

    Raises:
        PostroomError: the agent has ended.
    """
    for note in notes(worker):
        click.echo(note, err=True)
    error = ended(worker)
    if error is None:
        return
    for line in error.details:
        click.echo(f"    | {line}", err=True)
    raise error


def choose(
    needed: Needs,
    values: Mapping[str, str],
    known: Sequence[Credential],
    *,
    store: bool,
    env: Mapping[str, str] | None = None,
) -> Choice:
    """The key for a template, as `keys.choose`; with `store` that of the environment is kept without asking."""
    return keys.choose(
        needed, values, known, lambda form, name: store or _key_asked(form, name), env
    )


def keep(client: Client, choice: Choice) -> None:
    """Store the key of the environment in the post room, if one has to be stored."""
    from postroom.client.wire import done

    if said := done(keys.keep(client.inner, choice)):
        click.echo(said, err=True)


def _key_asked(form: KeyForm, name: str) -> bool:
    if not (sys.stdin and sys.stdin.isatty()):
        return False
    return click.confirm(
        f"Keep {form.variable} as the credential {name!r}, which the gateway sends to {host(form)}?",
        default=True,
        err=True,
    )


def known() -> Sequence[Credential]:
    """What the post room keeps; read from its file where it does not run."""
    try:
        with connect() as client:
            return client.credentials()
    except NotRunning:
        return [credential.shown() for credential in kept(state_folder())]


def kept(state: Path) -> Sequence[BoundCredential]:
    """What the file in the state folder has."""
    from postroom.gateway.credentials import Credentials
    from postroom.settings import DEFAULT_ORG, Settings

    return Credentials(Settings(state=state).credentials_file).of(chosen_org() or DEFAULT_ORG)
