"""The rules of what a worker may reach outside, and the one spelling of hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput, InvalidTemplate
from postroom.protocol.egress import AllowList, EgressRule, Target, below, is_plain
from postroom.protocol.hosts import canonical_host, split_authority
from postroom.protocol.template import parse_template

TEMPLATE = '[worker]\nname = "scout"\n[workstation]\ncommand = ["x"]\n'


@pytest.mark.parametrize(
    "text, written",
    [
        ("api.anthropic.com", "https://api.anthropic.com"),
        ("API.Anthropic.com.", "https://api.anthropic.com"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("*.githubusercontent.com:443", "https://*.githubusercontent.com"),
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434"),
        ("https://[2606:4700:0::1111]:8443/x/", "https://[2606:4700::1111]:8443/x/"),
        ("xn--bcher-kva.example", "https://xn--bcher-kva.example"),
    ],
)
def test_a_rule_is_read_with_its_defaults(text: str, written: str):
    assert str(EgressRule.parse(text)) == written


@pytest.mark.requirement("egress-refused-told")
@pytest.mark.parametrize(
    "text",
    [
        *("", "*", "*.com", "a*.example.com", "*.*.example.com", "*.10.0.0.1", "https://"),
        *("htps://example.com", "ftp://example.com", "HTTPS://example.com", "//example.com"),
        *("user@example.com", "https://user:pw@example.com", "example.com:0", "example.com:65536"),
        *(
            "example.com:x",
            "example.com:",
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "0177.0.0.1",
            "127.1",
        ),
        *("1.2.3", "1.2.3.4.5", "::1", "[::1", "[fe80::1%eth0]", "bücher.example", "exa mple.com"),
        *("-a.example", "a..example", "example.com/a/../b", "example.com//x", "example.com/%2e%2e"),
        *("example.com/a\\b", "example.com/*", "example.com/?q", "example.com/#f", "example.com/ä"),
    ],
)
def test_a_rule_that_could_mean_two_things_is_refused_with_its_place(text: str):
    with pytest.raises(InvalidTemplate, match=r"overrides\.egress"):
        EgressRule.parse(text)


@pytest.mark.requirement("egress-refused-told")
def test_a_template_with_a_bad_rule_is_refused_with_what_was_meant():
    with pytest.raises(InvalidTemplate, match="did you mean 'https'"):
        parse_template(TEMPLATE + '[overrides]\negress = ["htps://api.example.com"]\n')


def test_a_template_may_not_lead_outside_without_a_rule():
    text = TEMPLATE + 'env = { BASE_URL = "${POSTROOM_EGRESS}/https/api.example.com" }\n'

    with pytest.raises(InvalidTemplate, match="BASE_URL"):
        parse_template(text)
    parse_template(text + '[overrides]\negress = ["api.example.com"]\n')


@pytest.mark.parametrize(
    "rule, scheme, place, path, covered",
    [
        ("api.example.com", "https", "api.example.com", "/any/../thing", True),
        ("api.example.com", "https", "API.EXAMPLE.com.", "/", True),
        ("api.example.com", "http", "api.example.com", "/", False),
        ("api.example.com", "https", "api.example.com:8443", "/", False),
        ("api.example.com", "https", "x.api.example.com", "/", False),
        ("api.example.com", "https", "api.example.com.evil.com", "/", False),
        ("*.example.com", "https", "a.example.com", "/", True),
        ("*.example.com", "https", "a.b.example.com", "/", False),
        ("*.example.com", "https", "example.com", "/", False),
        ("*.example.com", "https", "aexample.com", "/", False),
        ("api.example.com/v1", "https", "api.example.com", "/v1", True),
        ("api.example.com/v1", "https", "api.example.com", "/v1/x", True),
        ("api.example.com/v1/", "https", "api.example.com", "/v1/x", True),
        ("api.example.com/v1", "https", "api.example.com", "/v1x", False),
        ("api.example.com/v1", "https", "api.example.com", "/v1/%C0%AE%C0%AE/x", False),
        ("api.example.com/v1", "https", "api.example.com", "/v1/%EF%BC%8E%EF%BC%8E/x", False),
        ("api.example.com/v1", "https", "api.example.com", "/v1/%E2%80%A5/x", False),
        ("api.example.com/v1", "https", "api.example.com", "/v1/..%EF%BC%8Fx", False),
        ("api.example.com/v1", "https", "api.example.com", "/v1/caf%C3%A9", True),
        ("api.example.com/v1", "https", "api.example.com", "/v1/%2E%2e/x", False),
        ("api.example.com/v1", "https", "api.example.com", "/v1/%2", False),
        ("http://127.0.0.1:11434", "http", "127.0.0.1:11434", "/api", True),
    ],
)
def test_what_a_rule_covers(rule: str, scheme: str, place: str, path: str, covered: bool):
    assert EgressRule.parse(rule).covers(Target.parse(scheme, place, path)) is covered


def test_without_rules_nothing_is_covered():
    assert not AllowList().covers(Target.parse("https", "example.com", "/"))


def test_a_tunnel_needs_a_rule_for_the_whole_host_by_https():
    rules = AllowList.parse(["a.example", "b.example/v1", "http://c.example"])

    assert rules.tunnels("a.example", 443)
    assert not rules.tunnels("b.example", 443)
    assert not rules.tunnels("c.example", 80)


HOSTS = st.from_regex(
    r"[a-zA-Z][a-zA-Z0-9-]{0,8}[a-z](\.[a-z][a-z0-9]{0,8}){1,3}\.?", fullmatch=True
)
PATHS = st.text("ab./\\%2eEfF;5cC:@", max_size=20).map(lambda text: "/" + text)


@given(HOSTS, st.integers(1, 65535), st.sampled_from(["https", "http"]))
def test_a_rule_covers_its_own_host_in_every_spelling_and_no_other(
    host: str, port: int, scheme: str
):
    rule = EgressRule.parse(f"{scheme}://{host}:{port}")

    assert EgressRule.parse(str(rule)) == rule
    assert rule.covers(Target.parse(scheme, f"{host.swapcase()}:{port}", "/x"))
    assert not rule.covers(Target.parse(scheme, f"x{host}:{port}", "/x"))
    assert not rule.covers(Target.parse(scheme, f"{host.rstrip('.')}x:{port}", "/x"))


@given(PATHS)
def test_what_lies_below_a_prefix_still_does_when_a_server_has_resolved_it(path: str):
    if not below(path, "/a/b"):
        return
    decoded = path
    for code, char in (("2e", "."), ("2f", "/"), ("5c", "\\")):
        decoded = decoded.replace(f"%{code}", char).replace(f"%{code.upper()}", char)
    resolved: list[str] = []
    for part in decoded.replace("\\", "/").split("/"):
        if part == "..":
            resolved = resolved[:-1]
        elif part not in {"", "."}:
            resolved.append(part)

    assert resolved[:2] == ["a", "b"]
    assert is_plain(path)


@given(st.text(max_size=40))
def test_any_text_is_a_rule_or_refused(text: str):
    try:
        rule = EgressRule.parse(text)
    except InvalidTemplate:
        return
    assert EgressRule.parse(str(rule)) == rule


@given(st.text("0123456789abcdefxX.:[]%-_", max_size=30))
def test_a_host_in_its_one_spelling_keeps_it(text: str):
    try:
        host = canonical_host(text)
    except InvalidInput:
        return
    assert canonical_host(host) == host
    assert split_authority(f"[{host}]" if ":" in host else host, 1) == (host, 1)
