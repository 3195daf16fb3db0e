"""`postroom credential`: keys that the gateway adds to workers' requests."""

from __future__ import annotations

import os
import sys

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json, print_table
from postroom.errors import InvalidInput
from postroom.lines.words import Cell
from postroom_a2a.text import one_line

EXAMPLES = """\b
Examples:
  postroom credential add anthropic --host api.anthropic.com \\
      --header "x-api-key: {secret}" --from-env ANTHROPIC_API_KEY
  pass show ai | postroom credential add ai --host api.openai.com --path /v1

A worker uses those that its template names: [overrides] credentials = ["anthropic"].
"""


@click.group("credential", epilog=EXAMPLES)
@state_option()
def command() -> None:
    """Keep keys that workers use without ever seeing them."""


@command.command("add", short_help="Keep a key; the secret comes from standard input or a prompt.")
@click.argument("name")
@click.option(
    "--host",
    required=True,
    metavar="HOST",
    help="HOST[:PORT], which is called over https, or http://HOST[:PORT].",
)
@click.option("--path", default="", metavar="PREFIX", help="Only for paths that begin so.")
@click.option(
    "--header",
    default="",
    metavar="LINE",
    help='How it is sent; "Authorization: Bearer {secret}" if not given.',
)
@click.option(
    "--worker", "workers", multiple=True, metavar="@NICK", help="Only for this worker; repeatable."
)
@click.option("--from-env", default="", metavar="VAR", help="Take the secret from this variable.")
@click.option("--replace", is_flag=True, help="Take the place of one of that name.")
@json_option
@state_option()
def add(
    name: str,
    host: str,
    path: str,
    header: str,
    workers: tuple[str, ...],
    from_env: str,
    replace: bool,
    as_json: bool,
) -> None:
    """Keep a key as NAME. The secret comes from standard input, or a prompt on a terminal, never an argument."""
    secret = _secret(from_env)
    with connect() as client:
        kept = client.add_credential(
            name, host, secret, path=path, header=header, workers=workers, replace=replace
        )
    if as_json:
        print_json(kept)
    else:
        click.echo(f"{one_line(kept['name'])} is added to requests to {one_line(kept['url'])}")


@command.command("list")
@json_option
@state_option()
def list_(as_json: bool) -> None:
    """List them, without their secrets."""
    with connect() as client:
        found = client.credentials()
    if as_json:
        print_json({"credentials": found})
    elif found:
        rows = [
            [
                Cell(one_line(kept["name"])),
                Cell(one_line(kept["url"])),
                Cell(one_line(kept["header"])),
                Cell(", ".join(f"@{one_line(w['nick'] or w['uid'])}" for w in kept["workers"])),
            ]
            for kept in found
        ]
        print_table(("NAME", "FOR", "HEADER", "ONLY"), rows)
    else:
        click.echo("no credentials")


@command.command("remove")
@click.argument("name")
@json_option
@state_option()
def remove(name: str, as_json: bool) -> None:
    """Forget NAME; the next request goes without it."""
    with connect() as client:
        client.remove_credential(name)
    if as_json:
        print_json({"removed": name})
    else:
        click.echo("removed")


def _secret(variable: str) -> str:
    """The secret, from a source that leaves no trace in a list of processes or a shell's history."""
    if variable:
        secret = os.environ.get(variable, "")
        source = f"the variable {variable}"
    elif sys.stdin.isatty():
        secret = click.prompt("Secret", hide_input=True, err=True)
        source = "the prompt"
    else:
        secret = sys.stdin.readline()
        source = "standard input"
    secret = secret.strip()
    if not secret:
        raise InvalidInput(f"{source} has no secret")
    return secret
