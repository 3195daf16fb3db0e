"""What waits for an answer of a person, in order. Pure; no Textual."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from postroom.tui.room import Need, NeedKind

SOON = 60.0
"""Seconds before its expiry from which an approval goes before older ones."""

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
    """Those that a person answers in a dialog."""
    found = [need for need in needs if need.kind in (NeedKind.APPROVAL, NeedKind.QUESTION)]
    tasks = {need.id for need in found if need.kind is NeedKind.QUESTION}
    # What a turn asks that does a task is the task's own question.
    return [need for need in found if not (_asks_words(need) and need.record["task"] in tasks)]


def _asks_words(need: Need) -> bool:
    return need.kind is NeedKind.APPROVAL and need.record["kind"] == "question"


class Queue:
    """What waits, without what was answered here; and what of it may still open by itself."""

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

    def onward(self, need: Need, now: float) -> Need | None:
        """The one that comes after a need, without those that were put off."""
        one: Need | None = need
        for _ in self._needs:
            one = self.beside(one, 1, now)
            if one is not None and key_of(one) != key_of(need) and key_of(one) not in self._later:
                return one
        return None

    def order(self, now: float) -> list[Need]:
        """All of it: first what expires soon, then the oldest."""

        def place(need: Need) -> tuple[float, float, str]:
            soon = need.expires is not None and need.expires - now <= SOON
            return (0.0 if soon else 1.0, (need.expires or 0.0) if soon else need.since, need.id)

        return sorted(self._needs.values(), key=place)

    def __contains__(self, need: Need) -> bool:
        return key_of(need) in self._needs

    def __len__(self) -> int:
        return len(self._needs)

    def find(self, id_: str) -> Need | None:
        """The need with that id of an approval or a task, or with an id that begins so."""
        return next((need for need in self._needs.values() if need.id.startswith(id_)), None)

    def place(self, need: Need, now: float) -> tuple[int, int]:
        """Which one it is, from 1, and of how many; (0, …) where it waits no more."""
        order = [key_of(each) for each in self.order(now)]
        key = key_of(need)
        return (order.index(key) + 1 if key in order else 0, len(order))

    def beside(self, need: Need | None, step: int, now: float) -> Need | None:
        """The one `step` places after a need (before it, if negative), past the end the first again.

        Args:
            need: one that waits no more, or None, has no place: its next one is the first, the one before the last.
        """
        order = self.order(now)
        if not order:
            return None
        keys = [key_of(each) for each in order]
        key = key_of(need) if need is not None else None
        if key not in keys:
            return order[0] if step > 0 else order[-1]
        return order[(keys.index(key) + step) % len(order)]
