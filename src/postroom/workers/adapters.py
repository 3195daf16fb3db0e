"""Whether there is the adapter that a template names. Another package is not loaded: that is the sidecar's part."""

from __future__ import annotations

from importlib.metadata import entry_points

from postroom.errors import InvalidTemplate
from postroom.protocol.template import ADAPTER_GROUP, ADAPTERS


def check_adapter(name: str) -> None:
    """Raise InvalidTemplate for an adapter that neither Postroom nor an installed package has."""
    if name in ADAPTERS:
        return
    theirs = sorted({entry.name for entry in entry_points(group=ADAPTER_GROUP)})
    if name not in theirs:
        raise InvalidTemplate(
            f"there is no adapter {name!r}",
            remedy=f"workstation.adapter is one of {', '.join((*ADAPTERS, *theirs))}; "
            "for another one install the package that has it where Postroom is (docs/adapters.md)",
        )
