"""`postroom webhooks`: what verifies the push notifications of tasks."""

from __future__ import annotations

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json


@click.group("webhooks")
@state_option()
def command() -> None:
    """Show what verifies the push notifications of tasks.

    Each is signed as Standard Webhooks has it, in both forms: see docs/a2a.md for a receiver.
    """


@command.command("keys")
@json_option
@state_option()
def keys(as_json: bool) -> None:
    """Show your secret and the public key.

    Every caller has a secret of its own. It signs what goes to the URLs of this caller, so a receiver that has it knows
    that a push is of this post room. The public key does the same without a secret.
    """
    with connect() as client:
        found = client.webhook_keys()
    if as_json:
        print_json(found)
        return
    click.echo(f"secret  {found['secret']}")
    click.echo(f"public  {found['public']}")
