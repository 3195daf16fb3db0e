"""Picks the sandbox provider by name, and refuses to go on with a lesser one."""

from __future__ import annotations

from pathlib import Path

from postroom.errors import InvalidInput, SandboxUnavailable
from postroom.sandbox import bubblewrap, plain
from postroom.sandbox.port import Level, SandboxProvider

DEFAULT = bubblewrap.NAME
CHOICES = (bubblewrap.NAME, plain.NAME)


def check_name(name: str) -> None:
    """Raise for a name that no provider has.

    Raises:
        InvalidInput: it is not one of `CHOICES`.
    """
    if name not in CHOICES:
        raise InvalidInput(
            f"there is no sandbox {name!r}", remedy=f"choose one of: {', '.join(CHOICES)}"
        )


async def select(requested: str = DEFAULT, *, binary: Path | None = None) -> SandboxProvider:
    """The provider called `requested`, after a probe that proved its wall.

    Args:
        requested: one of `CHOICES`. "none" is had by that name only: nothing falls back to it.
        binary: the bwrap to use, and no other; None looks in the usual places.

    Raises:
        InvalidInput: no provider has that name.
        SandboxUnavailable: the provider's wall does not hold here, with what to do about it.
    """
    check_name(requested)
    if requested == plain.NAME:
        return plain.PlainProvider()
    provider = bubblewrap.BubblewrapProvider(binary)
    capability = await provider.probe()
    if capability.level is not Level.ENFORCED:
        raise SandboxUnavailable(
            f"the sandbox {requested!r} cannot be had here: {capability.detail}",
            remedy=capability.remedy,
        )
    return provider
