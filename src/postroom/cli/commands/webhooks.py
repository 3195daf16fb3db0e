"""`postroom webhooks`: what verifies the push notifications of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.declaring import asks
from postroom.cli.options import state_option

if TYPE_CHECKING:
    from postroom.protocol.shapes import WebhookKeys


@click.group("webhooks")
@state_option()
def command() -> None:
    """Show what verifies the push notifications of tasks.

    Each is signed as Standard Webhooks has it, in both forms: see docs/a2a.md for a receiver.
    """


@command.command("keys")
@asks("pushes.keys")
def keys(found: WebhookKeys) -> None:
    """Show your secret and the public key.

    Every caller has a secret of its own. It signs what goes to the URLs of this caller, so a receiver that has it knows
    that a push is of this post room. The public key does the same without a secret.
    """
    click.echo(f"secret  {found['secret']}")
    click.echo(f"public  {found['public']}")
