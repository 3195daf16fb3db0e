"""The host folders that hold the Python that runs Postroom, so that it also runs inside a sandbox.

These are the installation (`sys.base_prefix`), the virtual environment (`sys.prefix`) and the packages `postroom` and
`postroom_a2a`, each under its own path. Never a whole home folder, and of a source checkout only the packages.
"""

from __future__ import annotations

import site
import sys
from collections.abc import Iterable
from pathlib import Path

from postroom.errors import SandboxUnavailable
from postroom.sandbox.policy import WHOLE_FOLDERS, home
from postroom_a2a import errors as library

PACKAGE = Path(__file__).resolve().parents[1]
PACKAGES = (PACKAGE, Path(library.__file__).resolve().parent)


def folders() -> tuple[Path, ...]:
    """Folders to share read-only, under their own path, outermost first and none inside another.

    `/usr` is left out: every sandbox has it.

    Raises:
        SandboxUnavailable: Python lies right in a home or system folder, which no sandbox gets whole.
    """
    wanted = [Path(sys.base_prefix), Path(sys.prefix), *PACKAGES]
    user_site = Path(site.getusersitepackages())
    if PACKAGE.is_relative_to(user_site):
        wanted.append(user_site)  # `pip install --user` puts dependencies there
    # A path may be a link (uv's "cpython-3.12"), and programs use either name.
    names = {path for folder in wanted for path in (folder.absolute(), folder.resolve())}
    for path in names:
        _refuse_whole(path)
    return tuple(_outermost(path for path in names if not path.is_relative_to("/usr")))


def _refuse_whole(path: Path) -> None:
    users = home()
    if path in WHOLE_FOLDERS or (users is not None and users.is_relative_to(path)):
        raise SandboxUnavailable(
            f"Python is installed in {path}, which is not shared with sandboxes as a whole",
            remedy="install Postroom in a virtual environment in a folder of its own",
        )


def _outermost(paths: Iterable[Path]) -> list[Path]:
    kept: list[Path] = []
    for path in sorted(paths):
        if not any(path.is_relative_to(outer) for outer in kept):
            kept.append(path)
    return kept
