"""Lines that an agent prints, for tests of the adapters `jsonl` and `text`."""

from __future__ import annotations

from postroom.sidecar.adapters import Adapter, Said


def printed(adapter: Adapter, *lines: str) -> list[Said]:
    """What the adapter makes of these lines at once."""
    return adapter.feed("".join(f"{line}\n" for line in lines).encode())
