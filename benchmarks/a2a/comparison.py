"""The benchmark as a whole: environments, rounds, ratios, notes."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from pathlib import Path

from benchmarks.a2a import alone, targets
from benchmarks.a2a.environment import MAIN, SLIM, Environments
from benchmarks.a2a.peers.load import LEAST
from benchmarks.a2a.rounds import FULL, QUICK, Rounds
from benchmarks.report import Sheet

NOTES = (
    "calls: per second, from the begin of the first to the end of the last; one client process makes all of a turn.",
    "Servers and clients are processes of their own, those in Python on uvloop.",
    "The agent answers at once with the text that it was sent; a Task is completed and has it as an artifact.",
    "stream: Task, working, artifact, completed.",
    "Ids are 128 random bits from a generator in the process, on Node and in Python: uuid4 asks the system each time.",
    "product: each with the handler and the client that it comes with.",
    "SDK: its DefaultRequestHandler with the store in memory; tracing as it is by default, without a provider.",
    "trivial: one RequestHandler that answers directly, the same behind each transport.",
    "bare: bytes built once, one kept-alive connection for each call under way; the answer is not parsed.",
    "floors: frames of the size of a JSON-RPC call, by nats-py alone.",
    "two publishes: acknowledged, one after the other, stored in a file: what a durable call and its answer store.",
    "TypeScript: @a2a-js/sdk and @nats-io/transport-node on Node, ours, speaking the wire a2a-nats/1 (A2A 0.3).",
    "SLIM: slima2a with a node in a process of its own (bus), end-to-end encrypted; it asks for another SDK.",
    "Synadia agents speak another protocol: a prompt and chunks of text, no tasks; Message is one chunk, stream four.",
    "client, server, bus: µs of processor time per call; bus is nats-server. All share the cores.",
    f"A turn begins no call after its time, but makes {LEAST} a place; p99 of fewer than 100 calls is the slowest.",
    "handler alone: processor time of one call in the handler's process, one after the other, its agent included.",
    "RSS grown: after the rounds, while so many more calls were made.",
)

_PACKAGES = {
    MAIN: ("a2a-sdk", "grpcio", "uvicorn", "uvloop", "protobuf", "synadia-ai-agents"),
    SLIM: ("a2a-sdk", "slima2a", "slim-bindings"),
}


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure."""
    environments = Environments()
    environments.prepare()
    with tempfile.TemporaryDirectory(prefix="postroom-a2a-") as folder:
        rounds = Rounds(sheet, QUICK if quick else FULL, environments, Path(folder))
        asyncio.run(rounds.run())
        targets.tell(sheet, rounds.findings)
        asyncio.run(alone.measure(sheet, environments.python(MAIN), Path(folder), quick=quick))
    for text in NOTES:
        sheet.note(text)
    for environment, packages in _PACKAGES.items():
        found = _versions(environments.python(environment), packages)
        if found:
            sheet.note(f"environment {environment}: {found}.")
    for title, reason in rounds.left_out.items():
        sheet.note(f"without {title}: {reason}")


_ASK = """\
import importlib.metadata, sys
found = {each.metadata["Name"].lower(): each.version for each in importlib.metadata.distributions()}
print(", ".join(f"{name} {found[name]}" for name in sys.argv[1:] if name in found))
"""


def _versions(python: Path, packages: tuple[str, ...]) -> str:
    if not python.exists():
        return ""
    asked = subprocess.run(
        [python, "-c", _ASK, *packages], capture_output=True, text=True, check=True, timeout=60
    )
    return asked.stdout.strip()
