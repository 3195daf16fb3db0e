"""Which wall is demanded for a worker, by whom."""

from __future__ import annotations

import pytest

from postroom.errors import Forbidden, InvalidInput
from postroom.protocol.template import Template
from postroom.sandbox.port import Level
from postroom.workers.preparing import Demand, demand

ENFORCED, PARTIAL, NONE = Level


def demanded(
    *,
    template: tuple[str, str] = ("", ""),
    asked: tuple[str, str] = ("", ""),
    room: tuple[str, str] = ("auto", "enforced"),
) -> Demand:
    """Each pair is a sandbox and an isolation."""
    sandbox, isolation = template
    return demand(
        Template("worker", ("true",), sandbox=sandbox, isolation=isolation),
        sandbox=asked[0],
        isolation=asked[1],
        default_sandbox=room[0],
        default=room[1],
    )


@pytest.mark.requirement("sandbox-select-failclosed")
def test_by_default_the_strongest_sandbox_must_be_enforced():
    assert demanded() == Demand("auto", ENFORCED)


@pytest.mark.requirement("sandbox-select-failclosed")
@pytest.mark.parametrize(
    "template", [("none", ""), ("landlock", ""), ("", "partial"), ("", "none"), ("none", "none")]
)
def test_a_template_alone_cannot_weaken_the_wall(template: tuple[str, str]):
    with pytest.raises(Forbidden) as refused:
        demanded(template=template)

    assert "only a person" in refused.value.message
    assert refused.value.remedy.split()[-2] in {"--isolation", "--sandbox"}


@pytest.mark.requirement("sandbox-select-failclosed")
@pytest.mark.parametrize(
    "template, asked, expected",
    [
        (("none", ""), ("none", ""), Demand("none", NONE)),
        (("", ""), ("none", ""), Demand("none", NONE)),
        (("", ""), ("landlock", ""), Demand("landlock", PARTIAL)),
        (("landlock", ""), ("", "partial"), Demand("landlock", PARTIAL)),
        (("", "partial"), ("", "partial"), Demand("auto", PARTIAL)),
        (("", "enforced"), ("", "partial"), Demand("auto", PARTIAL)),
        (("none", ""), ("bubblewrap", ""), Demand("bubblewrap", ENFORCED)),
        (("none", ""), ("auto", ""), Demand("auto", ENFORCED)),
        (("", "partial"), ("bubblewrap", ""), Demand("bubblewrap", ENFORCED)),
        (("", "enforced"), ("landlock", ""), Demand("landlock", PARTIAL)),
        (("", ""), ("landlock", "enforced"), Demand("landlock", ENFORCED)),
    ],
)
def test_what_the_person_who_spawns_asks_for_counts(
    template: tuple[str, str], asked: tuple[str, str], expected: Demand
):
    assert demanded(template=template, asked=asked) == expected


def test_a_template_may_demand_more_than_the_post_room_does():
    found = demanded(template=("", "enforced"), room=("auto", "partial"))

    assert found == Demand("auto", ENFORCED)


def test_who_runs_the_post_room_without_a_wall_has_allowed_it_to_every_template():
    assert demanded(template=("none", "none"), room=("none", "enforced")) == Demand("none", NONE)


def test_a_template_that_demands_more_than_its_own_sandbox_is_refused_by_the_level():
    found = demanded(template=("", "enforced"), room=("none", "enforced"))

    assert found == Demand("none", ENFORCED)


@pytest.mark.parametrize("asked", [("castle", ""), ("", "strong")])
def test_an_unknown_sandbox_or_level_names_the_choices(asked: tuple[str, str]):
    with pytest.raises(InvalidInput) as refused:
        demanded(asked=asked)

    assert "none" in refused.value.remedy
