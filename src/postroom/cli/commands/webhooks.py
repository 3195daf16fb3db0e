"""`postroom webhooks`: URLs that are told what happens to an agent, and what verifies what is sent to them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.cli.declaring import asks, limit_option, parameter
from postroom.cli.options import state_option
from postroom.cli.output import print_table
from postroom.lines.text import Cell
from postroom.protocol.webhooks import HookEvent
from postroom.view.words import ago, span
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Attempt, Delivery, NewWebhook, Webhook, WebhookKeys

HEAD = ("WEBHOOK", "OF", "STATE", "WAITING", "EVENTS", "URL")
DELIVERIES_HEAD = ("DELIVERY", "EVENT", "ABOUT", "STATE", "TRIES", "WHEN")

COLOURS = {
    "active": "green",
    "delivered": "green",
    "pending": "yellow",
    "disabled": "red",
    "lost": "red",
    "given-up": "red",
}


class Events(click.ParamType):
    """Names of events, with commas between."""

    name = "events"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """The names."""
        if isinstance(value, list):
            return value
        found = [name.strip() for name in str(value).split(",")]
        known = [event.value for event in HookEvent]
        for name in found:
            if name not in known:
                self.fail(f"{name!r} is no event: {', '.join(known)}", param, ctx)
        return found


@click.group("webhooks")
@state_option()
def command() -> None:
    """Have URLs told what happens to you; show what verifies it.

    Each request is signed as Standard Webhooks has it, and by the headers X-A2A-...: see docs/post-office.md.
    """


@command.command("add", short_help="Have a URL told what happens to you.")
@asks(
    "webhooks.add",
    "url URL",
    parameter(
        "--events EVENTS: Of message.received, receipt, task, approval, with commas between.",
        type=Events(),
        default=HookEvent.MESSAGE.value,
        show_default=True,
    ),
    "--for agent @NICK: What happens to this agent of yours.",
)
def add(made: NewWebhook) -> None:
    """Have the URL told what happens to you from now on; the secret is the only line on standard output."""
    _say_secret(made)


@command.command("list", short_help="List your webhooks.")
@asks("webhooks.list")
def listing(found: list[Webhook]) -> None:
    """List your webhooks, and those of agents that you own; with the scope operate, everybody's."""
    rows = [
        [
            Cell(hook["id"]),
            Cell(f"@{one_line(hook['owner']['nick'], 64)}"),
            Cell(hook["state"], COLOURS.get(hook["state"])),
            Cell(str(hook["pending"] or "")),
            Cell(",".join(hook["events"])),
            Cell(one_line(hook["url"], 300)),
        ]
        for hook in found
    ]
    print_table(HEAD, rows, cut=("URL",), empty="no webhooks")
    for hook in found:
        if hook["reason"]:
            click.echo(f"{hook['id']}: {one_line(hook['reason'], 300)}")


@command.command("test", short_help="Send something that tells of nothing.")
@asks("webhooks.test", "webhook WEBHOOK")
def test(found: Attempt) -> None:
    """Send WEBHOOK a delivery that tells of nothing; a disabled one that takes it is told again."""
    if found["delivered"]:
        click.echo(f"it has taken it ({found['status']})")
        return
    click.echo(f"it has not taken it: {one_line(found['reason'], 300)}", err=True)


@command.command("deliveries", short_help="Show what a webhook was told.")
@asks("webhooks.deliveries", "webhook WEBHOOK", limit_option(20, "The most shown."))
def deliveries(found: list[Delivery]) -> None:
    """Show what WEBHOOK was told: what waits first, then what was tried, the last first."""
    now = time.time()
    rows = [
        [
            Cell(one["id"]),
            Cell(one["event"] or "-"),
            Cell(one["about"][:8]),
            Cell(one["state"], COLOURS.get(one["state"])),
            Cell(str(one["attempts"])),
            Cell(_when(one, now)),
        ]
        for one in found
    ]
    print_table(DELIVERIES_HEAD, rows, empty="no deliveries")
    for one in found:
        if one["reason"]:
            click.echo(f"{one['id']}: {one_line(one['reason'], 300)}")


@command.command("again", short_help="Send a delivery again.")
@asks("webhooks.again", "webhook WEBHOOK", "delivery DELIVERY")
def again(found: Delivery) -> None:
    """Send DELIVERY again to WEBHOOK now, with the same webhook-id, whatever became of it."""
    click.echo(f"{found['id']} goes out again")


@command.command("rotate", short_help="Give a webhook a new secret.")
@asks("webhooks.rotate", "webhook WEBHOOK")
def rotate(made: NewWebhook) -> None:
    """Give WEBHOOK a new secret, the only line on standard output; for a day the former one signs, too."""
    _say_secret(made)


@command.command("remove", short_help="Remove a webhook.")
@asks("webhooks.remove", "webhook WEBHOOK", named="webhook")
def remove(_: None, webhook: str) -> None:
    """Remove WEBHOOK, with what waits for it."""
    click.echo(f"removed {one_line(webhook, 64)}")


@command.command("keys")
@asks("pushes.keys")
def keys(found: WebhookKeys) -> None:
    """Show your secret for push notifications, and the public key.

    Every caller has a secret of its own. It signs what goes to the URLs of this caller, so a receiver that has it knows
    that a push is of this post room. The public key does the same without a secret, for webhooks, too.
    """
    click.echo(f"secret  {found['secret']}")
    click.echo(f"public  {found['public']}")


def _say_secret(made: NewWebhook) -> None:
    """Print a secret, alone on standard output, and beside it whose it is."""
    click.echo(f"secret of {made['id']} ({', '.join(made['events'])}), shown this once:", err=True)
    click.echo(made["secret"])


def _when(one: Delivery, now: float) -> str:
    if one["next_at"] is not None:
        due = parse_time(one["next_at"]) - now
        return f"in {span(due)}" if due > 0 else "now"
    return "-" if one["tried_at"] is None else ago(one["tried_at"], now)
