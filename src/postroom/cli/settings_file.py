"""Changes one setting in a settings file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from postroom.errors import StateUnwritable


def change_file(path: Path, key: str, value: Any) -> None:
    """Set `key` in the file at `path`; None removes it.

    Raises:
        InvalidInput: the file cannot be changed safely.
        StateUnwritable: it cannot be written.
    """
    from postroom.identity import privatefile
    from postroom.settings.sources import changed, entries, read

    text = read(path)
    entries(text, path)  # it may be broken already
    path = path.resolve()  # replace the target of a link, as in a folder of dot files
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        privatefile.replace(path, changed(text, key, value).encode())
    except OSError as error:
        raise StateUnwritable(f"cannot write {path}: {error.strerror}") from error
