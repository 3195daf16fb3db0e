"""What the command palette offers: commands, whom to look at, and what needs the person."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.text import Text
from textual.command import DiscoveryHit, Hit, Hits, Provider

from postroom.tui.news import Chosen, NeedChosen, Target
from postroom.tui.port import port_of
from postroom.tui.typing.commands import VERBS
from postroom_a2a.text import one_line

Entry = tuple[str, str, "Callable[[], None]"]


class Palette(Provider):
    """Finds by a few letters; harmless texts, no markup."""

    async def discover(self) -> Hits:
        """All there is, before anything is typed."""
        for name, about, act in self._entries():
            yield DiscoveryHit(Text(name), act, text=name, help=about)

    async def search(self, query: str) -> Hits:
        """What fits."""
        matcher = self.matcher(query)
        for name, about, act in self._entries():
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, Text(name), act, text=name, help=about)

    def _entries(self) -> Iterator[Entry]:
        app = port_of(self.screen)
        room = app.room
        for need in room.needs if room is not None else ():
            name = one_line(f"{need.kind.value} {need.who} {need.text}", 70)
            yield name, "needs you", lambda id_=need.id: self._post(NeedChosen(id_))
        for worker in room.workers if room is not None else ():
            target = Target(worker["nick"], worker["uid"])
            yield one_line(str(target)), worker["state"], lambda to=target: self._post(Chosen(to))
        for project in room.projects if room is not None else ():
            target = Target(project)
            yield one_line(str(target)), "project", lambda to=target: self._post(Chosen(to))
        for verb in VERBS:
            yield verb.line, verb.help, lambda word=verb.name: app.begin(f"/{word} ")

        yield "theme", "colours: light, dark, those of the terminal", self.app.search_themes

    def _post(self, message: Chosen | NeedChosen) -> None:
        self.app.post_message(message)
