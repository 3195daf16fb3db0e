"""Counters and their text."""

from __future__ import annotations

import pytest

from postroom.observe.metrics import COUNTER, GAUGE, MAX_SERIES, Family, Metrics, gauge, text


def test_the_text_is_what_prometheus_reads() -> None:
    metrics = Metrics()
    metrics.counter("a_total", "Says \\ and\nmore.", "what").add('quo"te\\\n', n=2)
    metrics.summary("b_seconds", "Took.").note(value=0.5)
    families = [*metrics.families(), gauge("c", "C.", 1.5), gauge("d", "D.", None)]

    assert text(families).splitlines() == [
        "# HELP a_total Says \\\\ and\\nmore.",
        "# TYPE a_total counter",
        'a_total{what="quo\\"te\\\\\\n"} 2',
        "# HELP b_seconds Took.",
        "# TYPE b_seconds summary",
        "b_seconds_sum 0.5",
        "b_seconds_count 1",
        "# HELP c C.",
        "# TYPE c gauge",
        "c 1.5",
        "# HELP d D.",
        "# TYPE d gauge",
    ]


@pytest.mark.parametrize(
    "value, shown",
    [
        (0, "0"),
        (True, "1"),
        (float("nan"), "NaN"),
        (float("inf"), "+Inf"),
        (-float("inf"), "-Inf"),
        (1e300, "1e+300"),
        (0.1, "0.1"),
    ],
)
def test_every_number_has_its_form(value: float, shown: str) -> None:
    assert text([gauge("x", "X.", value)]).splitlines()[-1] == f"x {shown}"


def test_a_counter_without_labels_is_shown_from_the_start() -> None:
    metrics = Metrics()
    metrics.counter("a_total", "A.")
    assert text(metrics.families()).endswith("\na_total 0\n")


def test_one_name_is_one_counter_and_no_two_metrics_share_it() -> None:
    metrics = Metrics()
    assert metrics.counter("a_total", "A.", "x") is metrics.counter("a_total", "A.", "x")
    with pytest.raises(ValueError, match="two metrics"):
        metrics.counter("a_total", "A.", "y")
    with pytest.raises(ValueError, match="ends in _total"):
        metrics.counter("a", "A.")
    with pytest.raises(ValueError, match="no name"):
        metrics.summary("A b", "A.")
    with pytest.raises(TypeError, match="has the labels"):
        metrics.counter("a_total", "A.", "x").add("1", "2")


def test_values_without_end_become_one() -> None:
    counter = Metrics().counter("a_total", "A.", "id")
    for at in range(MAX_SERIES + 100):
        counter.add(str(at))
    values = counter.family().values
    assert len(values) == MAX_SERIES + 1
    assert values["other",] == 100


def test_one_metric_of_several_organisations_is_one() -> None:
    one = Family("x", GAUGE, "X.", ("org",), {("a",): 1})
    two = Family("x", GAUGE, "X.", ("org",), {("b",): 2})
    assert text([one, two]).count("# TYPE") == 1
    with pytest.raises(ValueError, match="two metrics"):
        text([one, Family("x", COUNTER, "X.", ("org",))])
