"""Saves the contents of parts as files. Agents chose the names: never a path, never an option, never a hidden file."""

from __future__ import annotations

import json
import mimetypes
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.waiting import said_if_slow
from postroom.client.files import whole_file
from postroom.errors import Conflict, EnvironmentFault
from postroom.protocol.blobs import is_blob
from postroom.protocol.parts import (
    DATA,
    FILE,
    TEXT,
    bytes_of,
    file_name,
    kind_of,
    media_type_of,
    name_in,
)
from postroom.view.words import Holder, Part, part_line, size_of, sized

if TYPE_CHECKING:
    from postroom.client.http import Client


out_option = click.option(
    "--out", metavar="DIR", type=click.Path(file_okay=False), help="Folder for the files."
)
force_option = click.option("--force", is_flag=True, help="Replace files that are there.")


@dataclass(slots=True)
class Saver:
    """Writes the contents of parts into a folder.

    A name that an agent chose never leaves the folder, and no two contents of one run get the same name.

    Attributes:
        force: replace files that are there.
        saved: the files written so far.
        left: parts that were not, each with the reason.
    """

    client: Client
    folder: Path
    force: bool = False
    saved: list[Path] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)

    def save(self, holder: Holder, called: str = "", *, texts: bool = False) -> None:
        """Write every part; `called` names those that have no name of their own.

        Args:
            texts: write the texts too, together as one file.

        Raises:
            Conflict: a file is there, and `force` is not set.
            PostroomError: a blob could not be fetched, or a file not written.
        """
        if texts and (text := holder.get("text", "")):
            name = file_name(called) or "text"
            self._write(name if "." in name else f"{name}.txt", [text.encode(errors="replace")])
        for part, size in sized(holder):
            if kind_of(part) != TEXT:
                self._save(part, size, called)

    def tell(self, *, quiet: bool = False) -> None:
        """Print what was written (if `quiet` on standard error), and on standard error what was not."""
        for path in self.saved:
            click.echo(f"saved {path}, {size_of(path.stat().st_size)}", err=quiet)
        for line in self.left:
            click.echo(line, err=True)

    def _save(self, part: Part, size: int | None, called: str) -> None:
        url = part.get("url")
        if kind_of(part) == FILE and isinstance(url, str) and not is_blob(url):
            # An address that an agent names is not ours to ask.
            self.left.append(f"{part_line(part, size)}: not fetched")
            return
        name = name_in(part) or _named(called, part)
        if isinstance(url, str) and kind_of(part) == FILE:
            with said_if_slow(f"fetching {name} ..."):
                self._write(name, self.client.get_blob(url))
        elif kind_of(part) == FILE:
            self._write(name, [bytes_of(part["raw"])])
        else:
            said = part["data"] if kind_of(part) == DATA else part
            self._write(
                name,
                [f"{json.dumps(said, ensure_ascii=False, indent=2)}\n".encode(errors="replace")],
            )

    def _write(self, name: str, content: Iterable[bytes]) -> None:
        path = self.folder / self._free(name)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentFault(f"{self.folder} cannot be made: {error.strerror}") from error
        if not self.force and (path.exists() or path.is_symlink()):
            raise Conflict(
                f"{path} is there already", remedy="another folder, or --force to replace it"
            )
        with whole_file(path) as file:
            file.writelines(content)
        self.saved.append(path)

    def _free(self, name: str) -> str:
        """`name`, with a number before its extension where another content has it."""
        stem, dot, end = name.rpartition(".")
        if not stem:
            stem, dot, end = name, "", ""
        number, tried = 1, name
        # Some file systems take names that differ in capitals or in Unicode's form alone for the same one.
        while (alike := unicodedata.normalize("NFKC", tried).casefold()) in self._taken:
            number += 1
            tried = f"{stem}-{number}{dot}{end}"
        self._taken.add(alike)
        return tried


def _named(called: str, part: Part) -> str:
    """A name for a part that has none."""
    stem = file_name(called) or kind_of(part) or "part"
    kind = media_type_of(part)
    end = ".json" if kind_of(part) != FILE else (mimetypes.guess_extension(kind) or "")
    return stem if stem.endswith(end) else f"{stem}{end}"
