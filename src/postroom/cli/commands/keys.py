"""`postroom keys`."""

from __future__ import annotations

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom_a2a.text import one_line


@click.group("keys")
def command() -> None:
    """List and rotate the keys that credentials hang on."""


@command.command("list")
@json_option
@state_option()
def listing(as_json: bool) -> None:
    """Show the public keys: what each is for, and whether it is in use."""
    with connect() as client:
        keys = client.trusted_keys()
    if as_json:
        print_json({"keys": keys})
        return
    for key in keys:
        click.echo(f"{key['role']:<15} {key['state']:<9} {key['key']}")


@command.command("rotate")
@click.option(
    "--agents", "kind", flag_value="agents", default=True, help="Signs workers (default)."
)
@click.option("--account", "kind", flag_value="account", help="All signing keys of the account.")
@click.option("--operator", "kind", flag_value="operator", help="Signs accounts.")
@click.option("--proxy", "kind", flag_value="proxy", help="The gateway's.")
@json_option
@state_option()
def rotate(kind: str, as_json: bool) -> None:
    """Replace a key; workers move to the new one without a gap, then the former counts no more."""
    with connect() as client:
        rotated = client.rotate(kind)
    if as_json:
        print_json(rotated)
        return
    click.echo(f"rotated: {', '.join(rotated['roles'])}")
    for step in rotated["steps"]:
        click.echo(f"  next: {one_line(step)}")
    for uid in rotated["cut"]:
        click.echo(f"  did not move in time and was cut: {one_line(uid)}", err=True)
