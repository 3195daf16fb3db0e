"""Run A2A's official kit against an agent of a post room, and print what came of it.

    python -m tests.conformance.run --kit DIR [--python DIR/.venv/bin/python] [-- -k history]

DIR is a checkout of github.com/a2aproject/a2a-tck, branch 1.0-dev; the Python is one that has what the kit needs. A
post room of its own is started in a scratch folder, and a worker is spawned behind the wall. The kit knows no keys, so
a relay before the post room adds one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.conformance.relay import grpc_relay, http_relay
from tests.e2e.conftest import PostRoom, until

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SECONDS = 1800
OUTCOMES = ("passed", "failed", "xfailed", "skipped")


@contextmanager
def post_room(stack: ExitStack, webhooks: int, *, states_version: bool) -> Generator[str]:
    """Our agent behind the relays; yields the URL for the kit.

    Args:
        webhooks: port of the kit's receiver on loopback.
    """
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="postroom-kit-")))
    room = PostRoom(scratch / "state", scratch)
    room.env["POSTROOM_A2A_GRPC_LISTEN"] = "127.0.0.1:0"
    room.env["POSTROOM_EGRESS_ALLOW_PRIVATE"] = f"127.0.0.1:{webhooks}"
    room.up()
    stack.callback(room.call, "down")
    folder = scratch / "template"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    room.run("spawn", str(folder / "kit.toml"))
    url, key = room.server["url"], room.server["token"]
    agent = f"{url}/a2a/{room.worker('kit')['uid']}"
    until(lambda: room.worker("kit")["state"] == "idle")
    card = {each["protocolBinding"]: each for each in _card(agent, key)["supportedInterfaces"]}
    replaced = {}
    if there := card.get("GRPC"):
        near = stack.enter_context(grpc_relay(there["url"], there["tenant"], key))
        replaced[there["url"]] = near
    relay = http_relay(agent, key, replaced, states_version=states_version)
    yield stack.enter_context(relay)


def _card(agent: str, key: str) -> dict[str, list[dict[str, str]]]:
    import json

    request = urllib.request.Request(
        f"{agent}/.well-known/agent-card.json", headers={"Authorization": f"Bearer {key}"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


@contextmanager
def plain_server(stack: ExitStack, words: list[str]) -> Generator[str]:
    """The SDK's own server; yields the URL for the kit."""
    port = free_port()
    program = [sys.executable, "-m", "tests.conformance.plain", str(port), *words]
    server = subprocess.Popen(program, cwd=ROOT)
    stack.callback(server.wait)
    stack.callback(server.terminate)
    url = f"http://127.0.0.1:{port}"
    until(lambda: _answers(f"{url}/.well-known/agent-card.json"))
    yield url


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def run_kit(
    kit: Path, python: str, url: str, words: list[str], webhooks: int, *, own_ids: bool
) -> list[_Case]:
    """Run the kit and read its report."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [python, "-m", "pytest", "tests/compatibility", "-q", "--tb=line", "-rxs"]
        command += ["-p", "no:cacheprovider", f"--sut-host={url}", f"--junitxml={report}"]
        command += ["-p", "kit_plugin", "--webhook-host=127.0.0.1"]
        env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{HERE}:{kit}"}
        env["KIT_WEBHOOK_PORT"] = str(webhooks)
        env["KIT_OWN_IDS"] = "1" if own_ids else ""
        subprocess.run([*command, *words], cwd=kit, env=env, check=False, timeout=SECONDS)
        return [_Case(each) for each in ET.parse(report).iter("testcase")]


class _Case:
    """One case of the kit's report."""

    def __init__(self, element: ET.Element) -> None:
        folder = element.get("classname", "").removeprefix("tests.compatibility.")
        self.module = ".".join(folder.split(".")[:2])
        self.name = element.get("name", "")
        self.outcome, self.reason = "passed", ""
        for tag in ("failure", "error", "skipped"):
            if (found := element.find(tag)) is not None:
                self.outcome = "skipped" if tag == "skipped" else "failed"
                if found.get("type") == "pytest.xfail":
                    self.outcome = "xfailed"
                self.reason = " ".join((found.get("message") or "").split())


def table(cases: list[_Case]) -> str:
    """The result by module, in Markdown."""
    counts: dict[str, Counter[str]] = {}
    for case in cases:
        counts.setdefault(case.module, Counter())[case.outcome] += 1
    counts["all"] = sum(counts.values(), Counter())
    rows = [f"| module | {' | '.join(OUTCOMES)} |", "| --- |" + " --- |" * len(OUTCOMES)]
    rows += [
        f"| {name} | " + " | ".join(str(found[each]) for each in OUTCOMES) + " |"
        for name, found in counts.items()
    ]
    return "\n".join(rows)


def main() -> int:
    """Run the kit once; the exit status is 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kit", type=Path, required=True, help="a checkout of the kit")
    parser.add_argument("--python", default="", help="a Python with what the kit needs")
    parser.add_argument("--plain", action="store_true", help="run it against the SDK's own server")
    parser.add_argument("--legacy", action="store_true", help="which then speaks 0.3, too")
    parser.add_argument(
        "--kit-ids",
        action="store_true",
        help="leave the message ids to the kit, which repeats them",
    )
    parser.add_argument(
        "--state-version", action="store_true", help="ask for the card as a client of 1.0 should"
    )
    parser.add_argument("words", nargs="*", help="further words for the kit's pytest, after --")
    asked = parser.parse_args()
    python = asked.python or str(asked.kit / ".venv" / "bin" / "python")
    begun, webhooks = time.monotonic(), free_port()
    with ExitStack() as stack:
        if asked.plain:
            serving = plain_server(stack, ["--legacy"] if asked.legacy else [])
        else:
            serving = post_room(stack, webhooks, states_version=asked.state_version)
        url = stack.enter_context(serving)
        own_ids = not asked.kit_ids
        cases = run_kit(asked.kit, python, url, asked.words, webhooks, own_ids=own_ids)
    print(f"\n{table(cases)}\n")
    for case in cases:
        if case.outcome != "passed":
            print(f"{case.outcome}: {case.module} {case.name}: {case.reason[:300]}")
    print(f"\n{time.monotonic() - begun:.0f} s")
    return int(any(case.outcome == "failed" for case in cases))


if __name__ == "__main__":
    sys.exit(main())
