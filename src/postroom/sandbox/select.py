"""The choice of the sandbox provider: by name or the strongest, and never one weaker than demanded.

Each provider is probed before its use, once in this process: a probe starts a real sandbox. A failed one is probed
again the next time, since a person may have followed its remedy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import InvalidInput, SandboxUnavailable
from postroom.observe import get_logger
from postroom.sandbox import bubblewrap, landlock, netns, opensandbox, plain, seatbelt
from postroom.sandbox.opensandbox.remote import Remote
from postroom.sandbox.port import Capability, Level, SandboxProvider

log = get_logger(__name__)

AUTO = "auto"
"""Stands for the strongest provider that holds here; never for `none`."""
DEFAULT = AUTO
TO_HAVE = "to have "
"""Begins those details of a refusal that say how to get a wall."""

_Maker = Callable[[Path | None, Remote | None], SandboxProvider]

_MAKERS: dict[str, tuple[_Maker, Level]] = {
    bubblewrap.NAME: (lambda binary, _: bubblewrap.BubblewrapProvider(binary), Level.ENFORCED),
    netns.NAME: (lambda binary, _: netns.NetnsProvider(binary), Level.ENFORCED),
    landlock.NAME: (lambda *_: landlock.LandlockProvider(), Level.PARTIAL),
    seatbelt.NAME: (lambda *_: seatbelt.SeatbeltProvider(), Level.PARTIAL),
    opensandbox.NAME: (lambda _, remote: opensandbox.OpenSandboxProvider(remote), Level.ENFORCED),
    plain.NAME: (lambda *_: plain.PlainProvider(), Level.NONE),
}
_STRONGEST_FIRST = (
    (seatbelt.NAME,) if sys.platform == "darwin" else (bubblewrap.NAME, landlock.NAME)
)
"""The order of `auto` on this system. An address (`netns`) and another machine (`opensandbox`) come only by name."""

CHOICES = (AUTO, *_MAKERS)


@dataclass(frozen=True)
class Chosen:
    """A provider and its proven level."""

    provider: SandboxProvider
    capability: Capability


_chosen: dict[tuple[str, Path | None, Remote | None], Chosen] = {}


def check_name(name: str) -> None:
    """Raise `InvalidInput` for a name that is not one of `CHOICES`."""
    if name not in CHOICES:
        raise InvalidInput(
            f"no sandbox is called {name!r}", remedy=f"choose one of: {', '.join(CHOICES)}"
        )


def stated_level(name: str) -> Level | None:
    """The level that the provider of that name is built for, None for `auto`."""
    check_name(name)
    return None if name == AUTO else _MAKERS[name][1]


async def select(
    requested: str = DEFAULT,
    *,
    binary: Path | None = None,
    at_least: Level = Level.NONE,
    remote: Remote | None = None,
) -> Chosen:
    """The provider called `requested`, after a probe that proved its wall.

    Args:
        requested: one of `CHOICES`; nothing falls back to "none".
        binary: the bwrap to use, and no other; None looks in the usual places.

    Raises:
        SandboxUnavailable: its wall does not hold here, or is weaker than demanded; with the remedy.
    """
    if requested == AUTO:
        return await _strongest(binary, at_least)
    stated = stated_level(requested)
    if stated is not None and stated.weaker_than(at_least):
        raise SandboxUnavailable(
            f"the sandbox {requested!r} is {stated}, and {at_least} is demanded",
            remedy=f"choose another sandbox, or accept that: --isolation {stated}",
        )
    found = await _probed(requested, binary, remote)
    if found.capability.doubtful:
        raise _unproven(found.capability)
    level = found.capability.level
    if level.weaker_than(at_least) or (level is Level.NONE and stated is not Level.NONE):
        raise SandboxUnavailable(
            f"the sandbox {requested!r} does not work here: {found.capability.detail}",
            remedy=found.capability.remedy,
        )
    return found


async def _strongest(binary: Path | None, at_least: Level) -> Chosen:
    refused: list[Capability] = []
    for name in _STRONGEST_FIRST:
        found = await _probed(name, binary, None)
        level = found.capability.level
        if found.capability.doubtful:
            # A weaker wall in its place would be what somebody who disturbs the trial wants.
            raise _unproven(found.capability)
        if level is Level.NONE or level.weaker_than(at_least):
            refused.append(found.capability)
            continue
        return found
    best = next((c for c in refused if c.level is not Level.NONE), None)
    instead = f"spawn --isolation {best.level}" if best else "spawn --sandbox none"
    details = [f"{c.provider} ({c.level}): {c.detail}" for c in refused]
    details += [f"{TO_HAVE}{c.provider}: {c.remedy}" for c in refused if c.remedy]
    log.info("no sandbox: %s", "; ".join(details))
    wanted = "sandbox" if at_least is Level.NONE else f"{at_least} sandbox"
    raise SandboxUnavailable(
        f"this machine has no {wanted}",
        remedy=f"postroom doctor says how to get one; {instead} does with {'less' if best else 'none'}",
        details=details,
    )


def _unproven(found: Capability) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"the sandbox {found.provider!r} could not be tried: {found.detail}", remedy=found.remedy
    )


async def _probed(name: str, binary: Path | None, remote: Remote | None) -> Chosen:
    if (name, binary, remote) in _chosen:
        return _chosen[name, binary, remote]
    provider = _MAKERS[name][0](binary, remote)
    found = Chosen(provider, await provider.probe())
    if found.capability.level is provider.states:
        _chosen[name, binary, remote] = found
    return found
