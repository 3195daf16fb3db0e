"""What waits for an answer of a person, in order. Pure; no Textual."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from postroom.view.room import Need, NeedKind

Key = tuple[str, int]
"""Tells a need from every other one, also from the next question of the same task."""


def key_of(need: Need) -> Key:
    """The need's key, and the sequence of the record that asks."""
    return need.key, int(need.record["seq"])


def is_question(need: Need) -> bool:
    """Whether it is answered with words."""
    return need.kind is NeedKind.QUESTION or need.record["kind"] == "question"


def line_of(need: Need) -> str:
    """The need on one line, harmless: `@coder asks to use Bash: make test`."""
    return f"{need.who} asks{':' if is_question(need) else ' to use'} {need.text}"


def answerable(needs: Iterable[Need]) -> list[Need]:
    """Those that a person answers in a dialog, in the same order."""
    return [need for need in needs if need.kind in (NeedKind.APPROVAL, NeedKind.QUESTION)]


class Queue:
    """What waits, in the order in which it was given, without what was answered here; and what may open by itself."""

    def __init__(self) -> None:
        self._needs: dict[Key, Need] = {}
        self._known: set[Key] = set()
        self._answered: set[Key] = set()
        self._later: set[Key] = set()

    def take(self, needs: Iterable[Need]) -> Sequence[Need]:
        """Take over what waits now; returns what is new among it."""
        said = {key_of(need): need for need in needs}
        # What was answered here may still stand in an answer of the post room that was on its way.
        self._answered &= said.keys()
        self._later &= said.keys()
        self._needs = {key: need for key, need in said.items() if key not in self._answered}
        new = [need for key, need in self._needs.items() if key not in self._known]
        self._known = (self._known & said.keys()) | self._needs.keys()
        return new

    def answered(self, need: Need) -> None:
        """It waits no more, whatever an older answer of the post room says."""
        self._needs.pop(key_of(need), None)
        self._answered.add(key_of(need))

    def later(self, need: Need) -> None:
        """The person has put it off: it opens by a key alone."""
        self._later.add(key_of(need))

    def onward(self, need: Need) -> Need | None:
        """The one that comes after a need, without those that were put off."""
        one: Need | None = need
        for _ in self._needs:
            one = self.beside(one, 1)
            if one is not None and key_of(one) != key_of(need) and key_of(one) not in self._later:
                return one
        return None

    @property
    def order(self) -> list[Need]:
        """All of it."""
        return list(self._needs.values())

    def __contains__(self, need: Need) -> bool:
        return key_of(need) in self._needs

    def __len__(self) -> int:
        return len(self._needs)

    def find(self, id_: str) -> Need | None:
        """The need with that id of an approval or a task, or with an id that begins so."""
        return next((need for need in self._needs.values() if need.id.startswith(id_)), None)

    def place(self, need: Need) -> tuple[int, int]:
        """Which one it is, from 1, and of how many; (0, …) where it waits no more."""
        order = list(self._needs)
        key = key_of(need)
        return (order.index(key) + 1 if key in order else 0, len(order))

    def beside(self, need: Need | None, step: int) -> Need | None:
        """The one `step` places after a need (before it, if negative), past the end the first again.

        Args:
            need: one that waits no more, or None, has no place: its next one is the first, the one before the last.
        """
        order, keys = self.order, list(self._needs)
        if not order:
            return None
        key = key_of(need) if need is not None else None
        if key not in keys:
            return order[0] if step > 0 else order[-1]
        return order[(keys.index(key) + step) % len(order)]
