"""What was measured, round by round, on its way to the sheet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from benchmarks.a2a.children import Cost
from benchmarks.a2a.contenders import Contender, Work
from benchmarks.a2a.peers.load import Turn
from benchmarks.report import Sheet

Found = tuple[Turn, Cost]

RATE, P50, P99, FIRST_P50, FIRST_P99 = "calls", "p50", "p99", "first p50", "first p99"
CLIENT, SERVER, BUS = "CPU client", "CPU server", "CPU bus"

_MEASURES: dict[str, tuple[str, Callable[[Found], float]]] = {
    RATE: ("/s", lambda found: found[0].rate),
    P50: ("ms", lambda found: found[0].p50),
    P99: ("ms", lambda found: found[0].p99),
    FIRST_P50: ("ms", lambda found: found[0].first_p50),
    FIRST_P99: ("ms", lambda found: found[0].first_p99),
    CLIENT: ("µs", lambda found: found[1].client),
    SERVER: ("µs", lambda found: found[1].server),
    BUS: ("µs", lambda found: found[1].bus),
}


@dataclass
class Findings:
    """The rounds of each contender and work."""

    _rounds: dict[tuple[str, Work], list[Found]] = field(default_factory=dict)

    def keep(self, contender: Contender, work: Work, found: Found) -> None:
        """Add a round."""
        self._rounds.setdefault((contender.name, work), []).append(found)

    def forget(self, contender: Contender) -> None:
        """Drop a contender that could not go on: half of its rounds would compare with all of another's."""
        self._rounds = {
            key: rounds for key, rounds in self._rounds.items() if key[0] != contender.name
        }

    def values(self, name: str, work: Work, *measures: str) -> list[float]:
        """A measure of `name` in each round, the sum of several; empty if it did not take part."""
        reads = [_MEASURES[measure][1] for measure in measures]
        rounds = self._rounds.get((name, work), [])
        return [sum(read(found) for read in reads) for found in rounds]

    def tell(self, sheet: Sheet, contenders: Iterable[Contender], works: Iterable[Work]) -> None:
        """Write all of it down."""
        chosen = list(contenders)
        for work in works:
            for contender in chosen:
                if (contender.name, work) in self._rounds:
                    self._tell(sheet, contender, work)

    def _tell(self, sheet: Sheet, contender: Contender, work: Work) -> None:
        for measure, (unit, _) in _MEASURES.items():
            if measure in {FIRST_P50, FIRST_P99} and work.name != "stream":
                continue
            if measure == BUS and not contender.bus:
                continue
            values = self.values(contender.name, work, measure)
            sheet.add(f"{work.key} | {contender.title}: {measure}", values, unit)
