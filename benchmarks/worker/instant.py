"""An agent that completes each task and answers each message at once, and says when it has read it (seconds since the
epoch).
"""

from __future__ import annotations

import json
import sys
import time

for line in sys.stdin:
    read_at = time.time()
    said = json.loads(line)
    if said["type"] == "task":
        done = {"type": "complete", "task": said["id"], "text": repr(read_at)}
        print(json.dumps(done), flush=True)
    elif said["type"] == "message" and said["expects_reply"]:
        print(json.dumps({"type": "reply", "to": said["id"], "text": repr(read_at)}), flush=True)
