"""Agent `lead`: sends `reader` the path of a folder and posts its answer to the project.

Usage: lead.py FOLDER @READER. It speaks JSON lines on stdin and stdout and knows nothing else of Postroom.
"""

from __future__ import annotations

import json
import sys


def say(**line: object) -> None:
    """One JSON line to Postroom."""
    print(json.dumps(line), flush=True)


def main() -> None:
    """Ask, wait for the answer, tell the project."""
    folder, reader = sys.argv[1:]
    for raw in sys.stdin:
        line = json.loads(raw)
        match line["type"]:
            case "hello":
                say(type="post", text=f"asking {reader} to read {folder}", key="asking")
                # The key makes it one message, however often this program is started anew.
                say(type="send", to=reader, text=folder, expects_reply=True, key=f"read {folder}")
            case "message" if "@" + line["from"]["nick"] == reader and line["reply_to"]:
                say(
                    type="post",
                    text=f"{reader} has read it: {line['text']}",
                    key=f"summary {folder}",
                )
                say(type="seen", id=line["id"])
            case "message":
                say(type="reply", to=line["id"], text="I only wait for the answer of " + reader)
            case "stop":
                return


if __name__ == "__main__":
    main()
