"""`postroom credential`: keys that the gateway adds to workers' requests."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.declaring import Answer, answers, asks, parameter
from postroom.cli.options import connect, state_option
from postroom.cli.output import print_table
from postroom.errors import InvalidInput
from postroom.lines.text import Cell
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Credential

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
@answers(
    "name",
    parameter(
        "--host HOST: HOST[:PORT], which is called over https, or http://HOST[:PORT].",
        required=True,
    ),
    "--path PREFIX: Only for paths that begin so.",
    '--header LINE: How it is sent; "Authorization: Bearer {secret}" if not given.',
    "--worker workers @NICK: Only for this worker; repeatable.",
    "--from-env VAR: Take the secret from this variable.",
    "--replace: Take the place of one of that name.",
    of="credentials.add",
)
def add(name: str, from_env: str, **given: Any) -> Answer:
    """Keep a key as NAME. The secret comes from standard input, or a prompt on a terminal, never an argument."""
    secret = _secret(from_env)
    with connect() as client:
        kept = client.add_credential(name, secret=secret, **given)
    return kept, f"{one_line(kept['name'])} is added to requests to {one_line(kept['url'])}"


@command.command("list")
@asks("credentials.list")
def list_(found: list[Credential]) -> None:
    """List them, without their secrets."""
    rows = [
        [
            Cell(one_line(kept["name"])),
            Cell(one_line(kept["url"])),
            Cell(one_line(kept["header"])),
            Cell(", ".join(f"@{one_line(w['nick'] or w['uid'])}" for w in kept["workers"])),
        ]
        for kept in found
    ]
    print_table(("NAME", "FOR", "HEADER", "ONLY"), rows, empty="no credentials")


@command.command("remove")
@asks("credentials.remove", "name", named="removed")
def remove(_: None) -> None:
    """Forget NAME; the next request goes without it."""
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
