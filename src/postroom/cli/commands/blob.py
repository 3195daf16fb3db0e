"""`postroom blob`: store, fetch, list and remove content that is too large for messages."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from postroom.cli.declaring import Answer, answers, asks, limit_option, parameter, takes
from postroom.cli.options import connect, state_option
from postroom.cli.output import print_table
from postroom.client.files import media_type_for, whole_file
from postroom.lines.text import Cell
from postroom.protocol.blobs import sha256_of
from postroom.view.words import ago, size_of

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.protocol.shapes import Blob

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
@answers(
    parameter("file", type=click.File("rb")),
    "--type kind T: Media type; by the name if not given.",
)
def put(file: BinaryIO, kind: str) -> Answer:
    """Store FILE (- for standard input) and print its URL.

    Every agent that is told the URL may read it.
    """
    media_type = media_type_for(str(file.name), kind)
    with connect() as client:
        url = client.put_blob(file, media_type)
    return {"url": url}, url


@command.command("get")
@takes(
    "blob URL",
    parameter("-o --output FILE: Where to; else to standard output.", default=None),
    state_option(),
)
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
@asks("blobs.list", limit_option(100, "Most blobs shown."))
def list_(found: list[Blob]) -> None:
    """List what is stored, the largest first."""
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
    print_table(("URL", "SIZE", "TYPE", "UPLOADED", "NAMED"), rows, empty="no blobs")


@command.command("remove")
@asks("blobs.remove", "sha256 URL", named="removed")
def remove(_: None) -> None:
    """Remove the content that URL names.

    Who was told the URL cannot fetch it any more.
    """
    click.echo("removed")


def _fetch(client: Client, url: str, target: BinaryIO) -> None:
    target.writelines(client.get_blob(url))
