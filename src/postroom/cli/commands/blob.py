"""`postroom blob`: store, fetch, list and remove content that is too large for messages."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json, print_table
from postroom.client.files import media_type_for, whole_file
from postroom.lines.words import Cell, ago, size_of
from postroom.protocol.blobs import sha256_of
from postroom.protocol.limits import MAX_PAGE

if TYPE_CHECKING:
    from postroom.client.http import Client

EXAMPLES = """\b
Examples:
  postroom blob put report.pdf
  postroom blob get blob:sha256:6ae8... -o report.pdf
"""


@click.group("blob", epilog=EXAMPLES)
@state_option()
def command() -> None:
    """Store and fetch content that is too large for a message."""


@command.command("put")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--type", "kind", default="", metavar="T", help="Media type; by the name if not given."
)
@json_option
@state_option()
def put(file: BinaryIO, kind: str, as_json: bool) -> None:
    """Store FILE (- for standard input) and print its URL.

    Every agent that is told the URL may read it.
    """
    media_type = media_type_for(str(file.name), kind)
    with connect() as client:
        url = client.put_blob(file, media_type)
    if as_json:
        print_json({"url": url})
    else:
        click.echo(url)


@command.command("get")
@click.argument("blob", metavar="URL")
@click.option("-o", "--output", metavar="FILE", help="Where to; else to standard output.")
@state_option()
def get(blob: str, output: str | None) -> None:
    """Fetch the content that URL names, and check that it is that."""
    sha256_of(blob)
    if output is None and sys.stdout.isatty():
        raise click.UsageError("a terminal is no place for a blob: give it a file with -o FILE")
    with connect() as client:
        if output is None:
            _fetch(client, blob, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            with whole_file(Path(output)) as target:
                _fetch(client, blob, target)


@command.command("list")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=100,
    show_default=True,
    metavar="N",
    help="Most blobs shown.",
)
@json_option
@state_option()
def list_(limit: int, as_json: bool) -> None:
    """List what is stored, the largest first."""
    with connect() as client:
        found = client.blobs(limit)
    if as_json:
        print_json({"blobs": found})
    elif found:
        now = time.time()
        rows = [
            [
                Cell(blob["url"]),
                Cell(size_of(blob["size"])),
                Cell(blob["media_type"]),
                Cell(ago(blob["touched_at"], now)),
                Cell("" if blob["named"] else "by nobody, kept for a week"),
            ]
            for blob in found
        ]
        print_table(("URL", "SIZE", "TYPE", "UPLOADED", "NAMED"), rows)
    else:
        click.echo("no blobs")


@command.command("remove")
@click.argument("blob", metavar="URL")
@json_option
@state_option()
def remove(blob: str, as_json: bool) -> None:
    """Remove the content that URL names.

    Who was told the URL cannot fetch it any more.
    """
    with connect() as client:
        client.remove_blob(blob)
    if as_json:
        print_json({"removed": blob})
    else:
        click.echo("removed")


def _fetch(client: Client, url: str, target: BinaryIO) -> None:
    target.writelines(client.get_blob(url))
