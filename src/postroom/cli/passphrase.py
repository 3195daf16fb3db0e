"""The passphrase of a backup: from a file, or asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from postroom.errors import InvalidInput

passphrase_option = click.option(
    "--passphrase-file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The first line of FILE is the passphrase; without it you are asked.",
)


def passphrase_from(file: str | None, *, twice: bool) -> str:
    """The passphrase; asked for twice if it is a new one.

    Raises:
        InvalidInput: the file cannot be read, or nobody can be asked.
    """
    if file is not None:
        try:
            return Path(file).read_text().partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"cannot read {file}: {error}") from error
    if not sys.stdin.isatty():
        raise InvalidInput(
            "a passphrase is needed, and there is no terminal to type it in",
            remedy="--passphrase-file FILE",
        )
    return click.prompt("Passphrase", hide_input=True, confirmation_prompt=twice, err=True)
