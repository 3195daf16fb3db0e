"""What coding agents used, in the words of the command line."""

from __future__ import annotations

from typing import Any

import click
import pytest

from postroom.view.tasks import NOTHING, amount, dollars, usage_line


def test_tokens_are_written_short():
    assert [amount(count) for count in (0, 999, 1000, 12_340, 4_600_000, 7 * 10**9)] == [
        "0",
        "999",
        "1.0k",
        "12.3k",
        "4.6M",
        "7.0G",
    ]


def test_a_small_cost_is_not_shown_as_none():
    assert [dollars(cost) for cost in (0.0, 0.004, 0.01, 1234.5)] == [
        "$0.00",
        "<$0.01",
        "$0.01",
        "$1,234.50",
    ]


@pytest.mark.parametrize(
    "cost, line",
    [
        (0.0, "used 1,200 tokens in, 3 out"),
        (0.5, "used 1,200 tokens in, 3 out, $0.50"),
    ],
)
def test_a_line_says_what_was_used(cost: float, line: str):
    assert usage_line({"input_tokens": 1200, "output_tokens": 3, "cost": cost}) == line
    assert usage_line(NOTHING) == ""


def test_the_wide_status_has_a_column_for_it_where_any_worker_has_used_something():
    from postroom.cli.status_lines import status_lines
    from tests.cli.test_status import worker

    idle = worker("bob")
    busy = worker("alice") | {"usage": {"input_tokens": 12_000, "output_tokens": 345, "cost": 0.5}}
    head = {"server": {"pid": 1, "url": "http://x"}, "me": {}, "org": "default", "version": "1"}

    def lines(*workers: dict, wide: bool) -> list[str]:
        rest: dict[str, Any] = {"attention": [], "alerts": [], "deadletters": 0}
        said: Any = {**head, **rest, "workers": list(workers)}
        return [
            click.unstyle(line).rstrip() for line in status_lines(said, 0.0, width=None, wide=wide)
        ]

    shown = lines(busy, idle, wide=True)
    assert any(line.endswith("USED") for line in shown)
    assert any("@alice" in line and line.endswith("12.3k $0.50") for line in shown)
    assert not any("USED" in line for line in lines(idle, wide=True) + lines(busy, wide=False))
