"""What the agent is told of the way out."""

from __future__ import annotations

from postroom.sidecar.compose import agent_environment
from postroom.sidecar.config import SidecarConfig

OUTSIDE = "http://127.0.0.1:4444"


def config(**env: str) -> SidecarConfig:
    record = {
        "uid": "a" * 32,
        "nick": "scout",
        "state": "/state",
        "message_secret": "ab" * 16,
        "agent": {"command": ["agent"], "env": env},
    }
    return SidecarConfig.parse(record)


def test_a_base_url_in_the_template_leads_to_the_way_out():
    settings = config(ANTHROPIC_BASE_URL="${POSTROOM_EGRESS}/https/api.anthropic.com")

    env = agent_environment(settings, {}, 1, OUTSIDE)

    assert env["ANTHROPIC_BASE_URL"] == f"{OUTSIDE}/https/api.anthropic.com"
    assert env["POSTROOM_EGRESS"] == OUTSIDE


def test_programs_that_know_of_proxies_find_it_and_leave_the_local_api_alone():
    env = agent_environment(config(), {}, 1, OUTSIDE)

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        assert env[name] == OUTSIDE
    assert env["NO_PROXY"] == env["no_proxy"] == "localhost,127.0.0.1"


def test_the_template_may_choose_another_proxy():
    assert agent_environment(config(HTTPS_PROXY=""), {}, 1, OUTSIDE)["HTTPS_PROXY"] == ""


def test_without_rules_there_is_no_way_out_to_be_told_of():
    env = agent_environment(config(), {}, 1)

    assert not [name for name in env if "proxy" in name.lower() or "EGRESS" in name]
