from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from postroom.errors import InvalidInput, NotFound
from postroom.protocol.egress import AllowList
from postroom.protocol.template import TURN_ADAPTERS, parse_template
from postroom.protocol.template_needs import CREDENTIAL, MOUNTS, PROGRAM, SEARCH, needs
from postroom.templates.shipped import Shipped, listed, names, shipped
from postroom.templates.spawning import needs_here
from tests.agents.programs import CLAUDE, CODEX

ALL = listed()
FOUND = {PROGRAM: "/opt/x/bin/x", SEARCH: "/opt/node/bin:", MOUNTS: "/opt/x\n/opt/node/bin"}


def test_five_coding_agents_are_brought():
    assert names() == ("claude-code", "codex", "gemini", "goose", "opencode")
    with pytest.raises(NotFound) as caught:
        shipped("claude")
    assert "claude-code" in caught.value.remedy


@pytest.mark.parametrize("template", ALL, ids=lambda t: t.name)
def test_a_template_is_complete_with_the_place_of_its_program_and_a_key(template: Shipped):
    needed = template.needs
    for key in needed.keys:
        values = {**FOUND, CREDENTIAL: "kept", **key.values}
        parsed = parse_template(template.text, values)
        assert parsed.command[0] == FOUND[PROGRAM]
        assert parsed.read_only == ("/opt/x", "/opt/node/bin")
        assert parsed.env["PATH"] == "/opt/node/bin:${PATH}"
        assert parsed.adapter in TURN_ADAPTERS
        assert parsed.interactive
        assert parsed.credentials == ("kept",)
        assert not parsed.autonomous
    assert needed.install
    assert bool(needed.tested) == (template.name != "goose")


@pytest.mark.parametrize(
    "name, version", [("claude-code", CLAUDE.version), ("codex", CODEX.version)]
)
def test_the_version_that_a_template_calls_tested_is_the_one_that_the_tests_run(
    name: str, version: str
):
    assert shipped(name).needs.tested == version


@pytest.mark.parametrize("template", ALL, ids=lambda t: t.name)
def test_a_template_opens_the_models_host_and_no_other(template: Shipped):
    parsed = parse_template(template.text, FOUND)
    (url,) = {key.url for key in template.needs.keys}
    assert parsed.egress == (url,)
    other = parse_template(template.text, {**FOUND, "host": "localhost:99", "scheme": "http"})
    assert other.egress == ("http://localhost:99",)
    assert not AllowList.parse(other.egress).reaches("https", url.removeprefix("https://"), 443)


@pytest.mark.parametrize(
    "name, said, egress",
    [
        ("claude-code", "https://llm.example/anthropic/", "https://llm.example/anthropic"),
        ("codex", "http://127.0.0.1:81/v1", "http://127.0.0.1:81"),
        ("gemini", "https://llm.example:8443", "https://llm.example:8443"),
    ],
)
def test_the_place_of_the_model_is_where_the_programs_own_variable_says(
    name: str, said: str, egress: str
):
    text = shipped(name).text
    base = needs(text).base
    values: dict[str, str] = {}
    needed = needs_here(text, values, {base: said})
    assert {key.url for key in needed.keys} == {egress}
    assert parse_template(text, {**FOUND, **values}).egress == (egress,)
    chosen = {"host": "mine.example"}
    needs_here(text, chosen, {base: said})
    assert chosen == {"host": "mine.example"}
    with pytest.raises(InvalidInput, match=base):
        needs_here(text, {}, {base: "llm.example?key=1"})


@pytest.mark.parametrize("template", ALL, ids=lambda t: t.name)
def test_every_parameter_of_a_template_has_a_use(template: Shipped):
    document = tomllib.loads(template.text)
    overrides = document["overrides"]
    lists = [v for v in overrides.values() if isinstance(v, list)]
    rest = str({k: v for k, v in document.items() if k != "overrides"}) + str(lists)
    for name in template.needs.parameters:
        assert f"{{{name}}}" in rest, name


def test_the_files_are_in_the_package_that_is_installed():
    import postroom.templates as package

    folder = Path(package.__file__).parent
    assert all(template.path.is_relative_to(folder) for template in ALL)


def test_an_empty_parameter_leaves_an_entry_out_and_one_of_several_lines_is_several():
    text = """
    [worker]
    name = "x"
    [workstation]
    command = ["run", "{empty}", "{several}"]
    env = { A = "{empty}", B = "x{empty}", C = "" }
    [compute]
    read_only = ["/opt/a", "{several}", "{empty}"]
    [overrides]
    empty = ""
    several = "/opt/b\\n/opt/c"
    egress = ["example.com", "{empty}"]
    credentials = ["{empty}"]
    """
    parsed = parse_template(text)
    assert parsed.read_only == ("/opt/a", "/opt/b", "/opt/c")
    assert parsed.egress == ("example.com",)
    assert parsed.credentials == ()
    assert parsed.env == {"B": "x", "C": ""}
    assert parsed.command == ("run", "", "/opt/b\n/opt/c")  # arguments stay as they are


@pytest.mark.parametrize(
    "table, said",
    [
        ("[keys.a]\nurls = 1", "unknown key 'urls' in [keys.a]"),
        ("[keys]\na = 1", "keys.a must be a table"),
        ("[keys.a]\nset = { b = 1 }", "keys.a.set must be a table of texts"),
        ("[program]\nversion = '1'", "unknown key 'version' in [program]"),
    ],
)
def test_a_mistake_in_what_a_template_needs_is_named(table: str, said: str):
    from postroom.errors import InvalidTemplate

    with pytest.raises(InvalidTemplate) as caught:
        needs(f"[worker]\nname = 'x'\n{table}\n")
    assert said in caught.value.message
