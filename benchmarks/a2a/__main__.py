"""A few contenders by themselves, for a look while you change the code; writes no result.

    python -m benchmarks.a2a nats-fast-trivial nats-json-fast-trivial typescript-trivial [--rounds 3]

Prints calls per second and microseconds of processor time of client, server and bus, and the ratio to the last one.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.a2a.children import Cost, Pair, nats_server
from benchmarks.a2a.contenders import CONTENDERS, Contender, Work
from benchmarks.a2a.environment import Environments
from benchmarks.a2a.peers.kinds import Options
from benchmarks.a2a.peers.load import Order, Turn

ATS = (1, 16, 64)
SECONDS = 0.4
WARM_UP = 0.4

_Found = dict[tuple[Contender, int], list[tuple[Turn, Cost]]]


def main() -> None:
    """Measure what the command line names."""
    known = {each.name: each for each in CONTENDERS if each.bus in ("", "nats")}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.a2a", description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(known), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", choices=("message", "task", "stream"), default="message")
    chosen = parser.parse_args()
    environments = Environments()
    environments.prepare()
    contenders = [known[name] for name in chosen.names]
    found = asyncio.run(_measure(environments, contenders, chosen.rounds, chosen.work))
    _show(found, contenders)


async def _measure(
    environments: Environments, contenders: list[Contender], rounds: int, work: str
) -> _Found:
    found: _Found = {(each, at): [] for at in ATS for each in contenders}
    with tempfile.TemporaryDirectory(prefix="postroom-a2a-") as name:
        folder = Path(name)
        async with nats_server(folder) as (bus, pid), AsyncExitStack() as stack:
            pairs = {}
            for each in contenders:
                options = Options(each.kind, each.handler, bus if each.bus else "", name=each.name)
                runner = environments.runner(each.environment)
                at_bus = pid if each.bus else None
                pairs[each] = await Pair.start(stack, runner, options, folder, at_bus)
                await pairs[each].turn(Order(work, 200, 16, WARM_UP))
            for number in range(rounds):
                first = number % len(contenders)
                turned = contenders[first:] + contenders[:first]
                for at in ATS:
                    for each in turned:
                        turn = await pairs[each].turn(Order(work, 200, at, SECONDS))
                        found[each, at].append(turn)
    return found


def _show(found: _Found, contenders: list[Contender]) -> None:
    size = Work("message", 200, 1).size
    print(f"{size} B{'':>31} at    calls/s  (to last)   client   server      bus      sum")
    for at in ATS:
        last = statistics.median(turn.rate for turn, _ in found[contenders[-1], at])
        for each in contenders:
            turns = found[each, at]
            rate = statistics.median(turn.rate for turn, _ in turns)
            costs = [
                statistics.median(getattr(cost, part) for _, cost in turns)
                for part in ("client", "server", "bus")
            ]
            shown = "".join(f"{cost:9.1f}" for cost in (*costs, sum(costs)))
            print(f"{each.title:34} {at:3} {rate:10,.0f} {rate / last:10.2f} {shown}")


if __name__ == "__main__":
    main()
