"""The files for a container: Postroom's code, the worker's folders, and its secrets. None goes by a command line."""

from __future__ import annotations

import functools
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.errors import InvalidInput
from postroom.protocol.execd import mode_number
from postroom.sandbox.opensandbox.remote import BASE, CODE, EXECD_TOKEN, HOME, SECRETS, STATE, TMP
from postroom.sandbox.port import SandboxPaths, SandboxSpec
from postroom.sandbox.python_home import PACKAGES

if TYPE_CHECKING:
    from opensandbox.models.filesystem import WriteEntry

MAX_BYTES = 64 * 1024 * 1024
"""Bytes of all folders together: they are copied, not mounted."""

FOLDERS = (BASE, SECRETS, STATE, HOME, TMP)

FILE_MODE, FOLDER_MODE, SECRET_MODE = map(mode_number, (0o644, 0o700, 0o600))


@functools.cache
def code() -> bytes:
    """This version of Postroom as a zip that Python imports from; the image has its dependencies."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for path in sorted(package.rglob("*.py")):
                archive.write(path, path.relative_to(package.parent))
    return packed.getvalue()


def code_entries() -> list[WriteEntry]:
    """Postroom's code alone."""
    from opensandbox.models.filesystem import WriteEntry

    return [WriteEntry(path=CODE, data=code(), mode=FILE_MODE)]


def entries(spec: SandboxSpec, paths: SandboxPaths) -> list[WriteEntry]:
    """Everything but the secrets.

    Raises:
        InvalidInput: the folders hold too much.
    """
    from opensandbox.models.filesystem import WriteEntry

    wanted: list[tuple[str, bytes, int]] = []
    folders = [(spec.workspace, paths.workspace)]
    folders += [(mount.source, paths.mounts[mount.target]) for mount in spec.read_only]
    if spec.state is not None:
        folders.append((spec.state, paths.state))
    size = 0
    for source, target in folders:
        for name, path in _files(source):
            data = path.read_bytes()
            size += len(data)
            if size > MAX_BYTES:
                raise InvalidInput(
                    f"the worker's folders hold over {MAX_BYTES >> 20} MiB, which is too much to copy into the sandbox",
                    remedy="put large files into the image",
                )
            mode = mode_number(0o755) if path.stat().st_mode & 0o100 else FILE_MODE
            wanted.append((f"{target}/{name}" if name else target, data, mode))
    goods = [WriteEntry(path=path, data=data, mode=mode) for path, data, mode in wanted]
    return code_entries() + goods


def secrets(spec: SandboxSpec, execd_token: str) -> list[WriteEntry]:
    """The secrets, readable for their owner alone; with them the token of the container's execd."""
    from opensandbox.models.filesystem import WriteEntry

    contents = {**spec.secrets, EXECD_TOKEN: execd_token.encode()}
    return [
        WriteEntry(path=name, data=content, mode=SECRET_MODE) for name, content in contents.items()
    ]


def _files(source: Path) -> Iterator[tuple[str, Path]]:
    """Regular files below `source`, by their path in it; links and sockets are left out."""
    if source.is_file():
        yield "", source
        return
    for path in sorted(source.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path.relative_to(source)), path
