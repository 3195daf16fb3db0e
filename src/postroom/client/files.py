"""Files that commands upload or download as blobs."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from postroom.errors import EnvironmentFault, InvalidInput
from postroom.protocol.blobs import DEFAULT_MEDIA_TYPE, media_type_of


def media_type_for(name: str, given: str) -> str:
    """The given media type, or the one of the file's extension.

    Raises:
        InvalidInput: the given one is not a media type.
    """
    if not given:
        return mimetypes.guess_type(name)[0] or DEFAULT_MEDIA_TYPE
    kind = media_type_of(given)
    if kind == DEFAULT_MEDIA_TYPE != given.strip().lower():
        raise InvalidInput(f"{given!r} is not a media type", remedy="one such as application/pdf")
    return kind


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """A file to write to, which gets its name only when the block has ended well."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
