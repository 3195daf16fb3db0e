"""The dashboard and the alert rules ask for nothing that a post room does not export, and ask for it rightly."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from tests.metrics.scraping import Measured, Scrape, measured_room

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("metrics-true")]

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
OF_SCRAPER = {"instance", "job"}

_METRIC = re.compile(r"\b((?:postroom|process)_[a-z_]+)(?:\{([^}]*)\})?(\[[^]]+\])?")
_MATCHER = re.compile(r'([a-z]+)(=~|!=|=)"([^"]*)"')
_BY = re.compile(r"by \(([a-z, ]+)\)")


def dashboard() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard with its legend."""
    for panel in json.loads((PACKAGING / "grafana/postroom.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def rules() -> list[str]:
    text = (PACKAGING / "prometheus/postroom.rules.yml").read_text()
    return re.findall(r"^ +expr: (.*)$", text, re.MULTILINE)


@pytest.fixture(scope="module")
async def measured(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Measured]:
    async with measured_room(tmp_path_factory.mktemp("room")) as measured:
        yield measured


@pytest.fixture
async def scrape(measured: Measured) -> Scrape:
    await measured.room.api.get("/v1/status")
    return await measured.scrape()


def kind_of(scrape: Scrape, name: str) -> str:
    whole = re.sub(r"_(sum|count)$", "", name)
    if scrape.kinds.get(whole) == "summary" and whole != name:
        return "counter"
    assert name in scrape.kinds, f"nothing exports {name}"
    return scrape.kinds[name]


def check(scrape: Scrape, query: str, legend: str = "") -> None:
    found = list(_METRIC.finditer(query))
    assert found or "up{" in query, query
    by = {each.strip() for group in _BY.findall(query) for each in group.split(",")}
    assert set(re.findall(r"{{(\w+)}}", legend)) <= by | OF_SCRAPER, legend
    for metric in found:
        name, selector, span = metric.groups()
        kind = kind_of(scrape, name)
        assert (kind == "counter") == bool(span) or "delta(" in query, f"{query}: a {kind}"
        series = scrape.values.get(name, {})
        labels = {label for key in series for label, _ in key} | OF_SCRAPER
        assert by <= labels, f"{query}: {name} has the labels {labels}"
        for label, how, wanted in _MATCHER.findall(selector or ""):
            assert label in labels, f"{name} has no label {label}"
            values = {value for key in series for of, value in key if of == label}
            if "$" in wanted or label == "status":
                continue
            for each in wanted.split("|") if how != "=" else [wanted]:
                assert each in values, f"{name} has no {label} {each!r}"


async def test_each_query_of_the_dashboard_is_answered(scrape: Scrape) -> None:
    queries = list(dashboard())
    assert len(queries) > 30
    for query, legend in queries:
        check(scrape, query, legend)


async def test_each_alert_rule_can_come_true(scrape: Scrape) -> None:
    assert len(rules()) == 6
    for rule in rules():
        check(scrape, rule)


async def test_a_query_of_what_is_not_exported_is_found(scrape: Scrape) -> None:
    for wrong in (
        "sum(postroom_nothing)",
        "rate(postroom_dead_letters[5m])",
        "sum(postroom_messages_total)",
        "sum by (color) (postroom_dead_letters)",
        'postroom_workers{state="asleep"}',
    ):
        with pytest.raises(AssertionError):
            check(scrape, wrong)


def test_the_scrape_configuration_names_the_route_and_a_file_with_the_key() -> None:
    text = (PACKAGING / "prometheus/prometheus.yml").read_text()
    assert "metrics_path: /metrics\n" in text
    assert "credentials_file: " in text
    assert "postroom keys create --scope read" in text
