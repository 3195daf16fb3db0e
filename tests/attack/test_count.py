"""How many cases the attacker tries; docs/security.md says it, and this holds the number to the lists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.attack import cases, places
from tests.attack.test_http import FRAMING
from tests.attack.test_replays import CREDENTIALS, DIRECT, LINES

SECURITY = Path(__file__).resolve().parents[2] / "docs" / "security.md"


def counted() -> dict[str, int]:
    """Cases by kind. What is tried in several tests, or once more of somebody who does not exist, counts once."""
    own, victim = cases.OWN, cases.VICTIM
    return {
        "publishes": len(cases.publishes(own, victim)),
        "publishes at the server itself": len(cases.plain_publishes(own, victim)),
        "acknowledgements": len(cases.acknowledgements(own, victim)),
        "reply subjects": len(cases.replies(own, victim)),
        "subscriptions": len(cases.subscriptions(own, victim)),
        "headers": len(cases.headers(own, victim)),
        "frames": len(cases.frames(own, victim)) + len(cases.FIRST_LINES) + len(cases.PREFACES),
        "credentials": len(CREDENTIALS) + len(LINES) + (len(CREDENTIALS) + 1) * len(DIRECT),
        "requests": 3 * len(places.PATHS) + len(places.CLAIMS) + 2 * len(FRAMING),
        "ways out": len(list(places.requests(1))),
    }


def test_the_document_says_how_many_cases_there_are():
    count = counted()
    said = re.search(r"more than ([\d,]+) cases", SECURITY.read_text(encoding="utf-8"))

    assert said is not None
    stated = int(said[1].replace(",", ""))
    assert stated < sum(count.values()) < stated * 1.2


def test_every_kind_of_case_is_there_once_and_none_is_what_a_worker_may_do():
    assert all(number > 20 for number in counted().values())
    own, victim = cases.OWN, cases.VICTIM
    for listed in (cases.publishes, cases.replies, cases.subscriptions, cases.acknowledgements):
        found = listed(own, victim)
        assert len(found) - len(set(found)) <= 4 * len(cases.carriers(own, victim))
    assert f"worker.{victim}.inbox.{own}" not in cases.publishes(own, victim)
    assert (f"_I.{own}.>", "") not in cases.subscriptions(own, victim)
