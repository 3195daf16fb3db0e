"""`postroom logout`."""

from __future__ import annotations

import click

from postroom.cli.commands.login import chosen, save
from postroom.cli.options import json_option
from postroom.cli.output import print_json


@click.command("logout")
@click.argument("name", default="")
@json_option
def command(name: str, as_json: bool) -> None:
    """Forget the key of the login NAME, or of the one that commands go to.

    The key stays valid where it was made; `postroom keys revoke` ends it.
    """
    from postroom.client import keychain
    from postroom.client.logins import read

    logins = read()
    login = chosen(logins, name)
    if not login.key:
        keychain.forget(login.place)
    save(logins.without(login.name))
    if as_json:
        print_json({"name": login.name, "url": login.url})
    else:
        click.echo(f"forgot the key for {login.url} ({login.name})")
