"""The post room as the screen shows it, made of the API's answers. Pure; no Textual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroom.protocol.shapes import Status


@dataclass(frozen=True, slots=True)
class Room:
    """A snapshot.

    Attributes:
        status: the post room's answer.
        projects: names, sorted.
    """

    status: Status
    projects: tuple[str, ...] = ()
