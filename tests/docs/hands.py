"""An agent program that types what it is told into a shell of its sandbox: the reader of docs/agents.md.

It makes two pipes in its workspace. From `orders` it reads lines of JSON, `{"command", "given"}`; into `results` it
writes `{"status", "output"}` for each of them, and `{"line"}` for each line that Postroom hands it.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, TextIO


def tell(results: TextIO, **record: Any) -> None:
    """Write one line of JSON."""
    results.write(json.dumps(record) + "\n")
    results.flush()


def listen(results: TextIO) -> None:
    """Pass on what Postroom says."""
    for line in sys.stdin:
        tell(results, line=json.loads(line))


def main() -> None:
    """Type until `orders` ends."""
    for name in ("results", "orders"):
        if not Path(name).exists():
            os.mkfifo(name)
    with Path("orders").open() as orders, Path("results").open("w") as results:
        threading.Thread(target=listen, args=(results,), daemon=True).start()
        for raw in orders:
            order = json.loads(raw)
            done = subprocess.run(
                ["bash", "-c", order["command"]],
                input=order["given"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            tell(results, status=done.returncode, output=done.stdout)


main()
