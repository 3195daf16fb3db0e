"""An agent program that types what it is told into a shell of its sandbox: the reader of docs/agents.md.

It makes two pipes in its workspace. From `orders` it reads lines of JSON, `{"command", "given"}`; into `results` it writes
`{"status", "output"}` for each of them, and `{"line"}` for each line that Postroom hands it.
"""

import json
import os
import subprocess
import sys
import threading


def tell(results, **record):
    results.write(json.dumps(record) + "\n")
    results.flush()


def listen(results):
    for line in sys.stdin:
        tell(results, line=json.loads(line))


def main():
    for name in ("results", "orders"):
        if not os.path.exists(name):
            os.mkfifo(name)
    with open("orders") as orders, open("results", "w") as results:
        threading.Thread(target=listen, args=(results,), daemon=True).start()
        for raw in orders:
            order = json.loads(raw)
            done = subprocess.run(
                ["bash", "-c", order["command"]],
                input=order["given"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            tell(results, status=done.returncode, output=done.stdout)


main()
