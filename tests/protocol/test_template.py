"""Templates: every key is known and checked, and a template can ask for nothing that its reader did not read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroom.errors import InvalidName, InvalidTemplate
from postroom.protocol.template import MAX_TEMPLATE_BYTES, Template, parse_template

SMALLEST = """
[worker]
name = "scout"
[workstation]
command = ["python3", "reader.py"]
"""
FULL = """
[worker]
name = "scout"
project = "atlas"
description = "reads {folder}"
[workstation]
command = ["reader", "--in={folder}", "{unknown}", "{}"]
adapter = "text"
confirm = "explicit"
env = { MODE = "{mode}" }
files = ["reader.py"]
mcps = ["search"]
skills = ["reading"]
[compute]
sandbox = "bubblewrap"
read_only = ["/data/{folder}"]
memory_mb = 512
processes = 20
[sidecar]
restart_limit = 0
auto_approve = ["ls"]
[overrides]
folder = "src"
mode = "fast"
"""


def _smallest(**tables: str) -> str:
    """The smallest template with lines added to its tables."""
    text = SMALLEST
    for table, lines in tables.items():
        if f"[{table}]" in text:
            text = text.replace(f"[{table}]", f"[{table}]\n{lines}")
        else:
            text += f"\n[{table}]\n{lines}\n"
    return text


def test_the_smallest_template_has_the_defaults():
    assert parse_template(SMALLEST) == Template(name="scout", command=("python3", "reader.py"))


def test_each_key_reaches_the_template():
    assert parse_template(FULL) == Template(
        name="scout",
        project="atlas",
        description="reads src",
        command=("reader", "--in=src", "{unknown}", "{}"),
        adapter="text",
        confirm="explicit",
        env={"MODE": "fast"},
        files=("reader.py",),
        mcps=("search",),
        skills=("reading",),
        sandbox="bubblewrap",
        read_only=("/data/src",),
        memory_mb=512,
        processes=20,
        interactive=True,
        restart_limit=0,
        auto_approve=("ls",),
    )


@pytest.mark.parametrize("adapter", ["jsonl", "text"])
def test_a_message_is_done_when_the_agent_says_so_unless_the_template_says_otherwise(adapter: str):
    assert parse_template(_smallest(workstation=f'adapter = "{adapter}"')).confirm == "explicit"
    read = parse_template(_smallest(workstation=f'adapter = "{adapter}"\nconfirm = "read"'))
    assert read.confirm == "read"


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_a_set_value_replaces_the_default_of_a_declared_parameter():
    parsed = parse_template(FULL, {"folder": "docs"})

    assert parsed.read_only == ("/data/docs",)
    assert parsed.env == {"MODE": "fast"}


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_a_value_for_an_undeclared_parameter_is_refused_and_the_declared_are_named():
    with pytest.raises(InvalidTemplate, match="folder, mode"):
        parse_template(FULL, {"foldr": "docs"})


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_a_value_is_not_searched_for_parameters_again():
    parsed = parse_template(FULL, {"folder": "{mode}"})

    assert parsed.read_only == ("/data/{mode}",)


@pytest.mark.requirement("worker-spawn-all-or-nothing")
@pytest.mark.parametrize("value", ["../../etc", "..", "a/../.."])
def test_a_value_is_checked_like_what_it_is_put_into(value: str):
    with pytest.raises(InvalidTemplate, match="read_only"):
        parse_template(FULL, {"folder": value})


@pytest.mark.requirement("worker-spawn-all-or-nothing")
@pytest.mark.parametrize(
    "text, hint",
    [
        (_smallest(computer=""), "compute"),
        (_smallest(workstation='comand = ["x"]'), "command"),
        (_smallest(worker="colour = 1"), "name"),
        (_smallest(compute="memory = 5"), "memory_mb"),
    ],
)
def test_an_unknown_table_or_key_is_refused_with_the_nearest_known(text: str, hint: str):
    with pytest.raises(InvalidTemplate, match="unknown") as caught:
        parse_template(text)

    assert hint in caught.value.remedy


@pytest.mark.requirement("worker-spawn-all-or-nothing")
@pytest.mark.parametrize(
    "text, place",
    [
        ("worker = 5", "worker"),
        ("[worker]\nname = 'scout'", "workstation.command"),
        ("[workstation]\ncommand = ['x']", "worker.name"),
        (SMALLEST.replace('["python3", "reader.py"]', "[]"), "workstation.command"),
        (SMALLEST.replace('["python3", "reader.py"]', '[""]'), "workstation.command"),
        (SMALLEST.replace('["python3", "reader.py"]', '["a", 5]'), "workstation.command"),
        (SMALLEST.replace('["python3", "reader.py"]', '["a\\u0000b"]'), "workstation.command"),
        (_smallest(workstation='adapter = "x m l"'), "workstation.adapter"),
        (_smallest(workstation='confirm = "never"'), "workstation.confirm"),
        (_smallest(workstation="env = { A = 1 }"), "workstation.env"),
        (_smallest(workstation='env = { "A=B" = "1" }'), "workstation.env"),
        (_smallest(workstation='env = { "" = "1" }'), "workstation.env"),
        (_smallest(workstation='env = { A = "\\u0000" }'), "workstation.env"),
        (_smallest(compute="memory_mb = true"), "compute.memory_mb"),
        (_smallest(compute="memory_mb = -1"), "compute.memory_mb"),
        (_smallest(compute="memory_mb = 1.5"), "compute.memory_mb"),
        (_smallest(compute=f"memory_mb = {10**30}"), "compute.memory_mb"),
        (_smallest(compute=f"processes = {2**31}"), "compute.processes"),
        (_smallest(compute='sandbox = "../x"'), "compute.sandbox"),
        (_smallest(compute='read_only = "/data"'), "compute.read_only"),
        (_smallest(overrides="folder = 5"), "overrides.folder"),
    ],
)
def test_a_value_that_breaks_its_rule_is_refused_with_its_place(text: str, place: str):
    with pytest.raises(InvalidTemplate, match=place):
        parse_template(text)


@pytest.mark.requirement("never-shown")
@pytest.mark.parametrize("name", ["POSTROOM_API", "POSTROOM_SIDECAR_CONFIG"])
def test_a_template_cannot_set_what_postroom_sets(name: str):
    with pytest.raises(InvalidTemplate, match=name):
        parse_template(_smallest(workstation=f'env = {{ {name} = "x" }}'))


@pytest.mark.requirement("never-shown")
@pytest.mark.parametrize(
    "path",
    ["", "data", "./data", "/", "//", "/.", "/./", "//./.", "/..", "/data/../..", "/a\\u0000b"],
)
def test_a_folder_that_is_relative_the_root_or_climbs_is_refused(path: str):
    with pytest.raises(InvalidTemplate, match="read_only"):
        parse_template(_smallest(compute=f'read_only = ["{path}"]'))


@pytest.mark.requirement("never-shown")
@pytest.mark.parametrize(
    "name", ["", ".", "..", ".env", "../x", "a/b", "/etc/passwd", "a\\u0000", "a\\n", "a b", "-rf"]
)
def test_a_file_that_is_no_plain_name_beside_the_template_is_refused(name: str):
    with pytest.raises(InvalidTemplate, match=r"workstation.files"):
        parse_template(_smallest(workstation=f'files = ["{name}"]'))


@pytest.mark.requirement("directory-name-unique")
@pytest.mark.parametrize("name", ["0perator", "Scout", "a.b"])
def test_a_worker_with_a_nick_that_is_not_allowed_is_refused(name: str):
    with pytest.raises(InvalidName):
        parse_template(SMALLEST.replace("scout", name))


@pytest.mark.requirement("identity-inbox-private")
@pytest.mark.parametrize("project", ["*", ">", "a.b", "-", "Main"])
def test_a_project_that_is_no_token_of_a_subject_is_refused(project: str):
    with pytest.raises(InvalidName):
        parse_template(_smallest(worker=f'project = "{project}"'))


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_a_template_over_the_limit_is_refused():
    with pytest.raises(InvalidTemplate, match="over"):
        parse_template(SMALLEST + "#" * MAX_TEMPLATE_BYTES)


keys = st.sampled_from(
    [
        "worker",
        "workstation",
        "compute",
        "sidecar",
        "overrides",
        "name",
        "project",
        "command",
        "adapter",
        "env",
        "files",
        "read_only",
        "memory_mb",
        "restart_limit",
        "x",
        '"{a}"',
        "a.b",
    ]
)
literals = st.sampled_from(
    [
        '"a"',
        "'/'",
        '"{x}"',
        "[]",
        '["a"]',
        "[1]",
        "{}",
        '{A="b"}',
        "1",
        "-1",
        "9" * 5000,
        "nan",
        "true",
        "1979-05-27T07:32:00Z",
        "'''",
        '"\\u0000"',
        "[" * 3000,
        "0x",
        "{a={a=1}}",
    ]
)
lines = (
    st.builds("{} = {}".format, keys, literals)
    | keys.map("[{}]".format)
    | keys.map("[[{}]]".format)
)
toml_like = st.lists(lines, max_size=8).map("\n".join)
values = st.dictionaries(
    st.sampled_from(["folder", "mode", "x"]),
    st.text(st.characters(exclude_categories=())),
    max_size=2,
)


@pytest.mark.requirement("worker-spawn-all-or-nothing")
@given(toml_like | toml_like.map(SMALLEST.__add__) | st.text(st.characters(exclude_categories=())))
@example("\ud800")
@example("a = " + "[" * 5000)
@example("a = " + "9" * 5000)
@example("a = " + "{a=" * 5000)
@example(".".join("a" * 5000) + " = 1")
def test_any_text_is_a_template_or_an_error_of_the_template(text: str):
    try:
        parsed = parse_template(text)
    except (InvalidTemplate, InvalidName):
        return
    assert isinstance(parsed, Template)


@pytest.mark.requirement("worker-spawn-all-or-nothing")
@given(values)
@example({"folder": "\ud800"})
@example({"mode": "\0"})
@example({"folder": "\0"})
def test_any_value_of_a_parameter_gives_texts_that_a_process_can_be_started_with(
    chosen: dict[str, Any],
):
    try:
        parsed = parse_template(FULL, chosen)
    except (InvalidTemplate, InvalidName):
        return
    for text in (*parsed.command, *parsed.env.values(), *parsed.read_only, parsed.description):
        text.encode()
    assert "\0" not in "".join((*parsed.command, *parsed.env.values(), *parsed.read_only))


@pytest.mark.parametrize(
    "line, meant",
    [
        ("command = 'python3 \"a b.py\"'", 'command = ["python3", "a b.py"]'),
        ("command = 'an open \"quote'", 'command = ["an open \\"quote"]'),
    ],
)
def test_a_command_that_is_one_text_is_shown_as_a_list(line: str, meant: str):
    text = SMALLEST.replace('command = ["python3", "reader.py"]', line)
    with pytest.raises(InvalidTemplate) as caught:
        parse_template(text)
    assert caught.value.remedy == meant


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_template_is_called_so(text: str):
    with pytest.raises(InvalidTemplate, match="the template is empty"):
        parse_template(text)
