"""`postroom` that ends itself with SIGKILL at a step of a message between organisations: `python -m tests.e2e.dying`.

The text of a message, and its key, name its step. Each step kills once, and notes that in the folder
`POSTROOM_TEST_KILLED`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = (
    "before it is taken",
    "taken and not answered",
    "folded and not carried",
    "about to be stored there",
    "stored there and not noted",
    "folded there and not told",
    "about to be reported",
    "reported and not noted",
)
"""In the order in which a message goes through them; the last three when it was seen."""


def at(step: str, said: object) -> None:
    """End here if the message that is spoken of says so."""
    note = Path(os.environ["POSTROOM_TEST_KILLED"]) / step.replace(" ", "-")
    if f"at: {step}" in str(said) and not note.exists():
        note.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def around(owner: Any, name: str, before: str, after: str, said: Callable[..., object]) -> None:
    """Have a method end the process at the step before it, or after it; "" for none."""
    real = getattr(owner, name)

    async def method(*given: Any, **named: Any) -> Any:
        if before:
            at(before, said(*given, **named))
        done = await real(*given, **named)
        if after:
            at(after, said(*given, **named))
        return done

    setattr(owner, name, method)


def main() -> None:
    """Run the command with all steps in place."""
    from postroom.cli.root import main as run
    from postroom.mail.clerk import Clerk
    from postroom.mail.office import PostOffice
    from postroom.mail.relay import Relay
    from postroom.projection.submit import Submitter
    from postroom.protocol.receipts import State

    before, taken, folded, storing, stored, there, reporting, reported = STEPS
    around(PostOffice, "_send", before, "", lambda *given, **_: given[3].text)
    around(Submitter, "submit", "", taken, lambda *given, **_: given[4])
    around(Relay, "_bring", folded, "", lambda *given, **_: given[2])
    around(Relay, "store", storing, stored, lambda *given, **_: given[1].text)

    def of_receipt(_: Clerk, row: Any, state: State, *__: Any) -> str:
        return row.text if state is State.SEEN else ""

    around(Clerk, "report", reporting, reported, of_receipt)
    around(Relay, "_tell", there, "", lambda *given, **_: given[1])
    run()


if __name__ == "__main__":
    sys.argv[0] = "postroom"
    main()
