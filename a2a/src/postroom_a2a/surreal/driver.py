"""The package `surrealdb`, which is an extra."""

from __future__ import annotations

import importlib.util

from postroom_a2a.surreal.faults import NotInstalled


def check() -> None:
    """Look whether it is installed.

    Raises:
        NotInstalled: it is not.
    """
    if importlib.util.find_spec("surrealdb") is None:
        raise NotInstalled(
            "tasks in SurrealDB need a package that is not installed: surrealdb",
            remedy="pip install 'postroom[surrealdb]'",
        )
