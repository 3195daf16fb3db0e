"""docs/coding-agents.md as a reader follows it, with a scripted agent that is installed as npm installs Claude Code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from postroom.protocol.template import parse_template
from postroom.templates.shipped import listed
from tests.docs.pages import blocks
from tests.docs.shell import Shell
from tests.docs.test_readme import reader
from tests.templates.machine import link, package

__all__ = ["reader"]

PAGE = "docs/coding-agents.md"

MAIN = 'if __name__ == "__main__":'

TASK = "ab12cd34"
"""On the page: the task that was delegated last."""

TYPED = {"postroom credential add": "a secret\n"}
CODER = Path(__file__).parents[1] / "fakes" / "coder.py"


@pytest.mark.requirement("docs-commands-run")
@pytest.mark.requirement("template-programs-found")
@pytest.mark.timeout(180)
def test_every_command_of_the_page_works_in_its_order(reader: Shell) -> None:
    reader.run(". .venv/bin/activate")
    home = Path(reader.run("echo ~").strip())
    modules = home / ".npm-global" / "lib" / "node_modules"
    script = "#!/usr/bin/env python3\n" + CODER.read_text().replace(
        MAIN,
        f'{MAIN}\n    Path("made-by-the-agent").touch()',  # something to be merged
    )
    own = package(modules, "@anthropic-ai/claude-code", program="claude", content=script)
    link(home / ".npm-global" / "bin" / "claude", own / "bin" / "claude")
    reader.run("export ANTHROPIC_API_KEY=sk-ant-of-the-page")
    repository = (
        "git init -q ~/src/app && cd ~/src/app && git -c user.name=a -c user.email=a@b commit"
    )
    reader.run(f"({repository} -q --allow-empty -m first)")
    task = ""
    for block in blocks(PAGE):
        for command in block.commands if block.language == "console" else []:
            if command.words.startswith("postroom credential add anthropic"):
                reader.run("postroom credential remove anthropic")  # the one that `spawn` has kept
            given = next(
                (text for words, text in TYPED.items() if command.words.startswith(words)), ""
            )
            printed = reader.run(command.words.replace(TASK, task), given)
            if command.words.startswith("postroom delegate"):
                task = re.findall(r"\b[0-9a-f]{32}\b", printed)[0]
            assert "sk-ant-of-the-page" not in printed
            for shown in command.prints:
                assert shown in printed, command.words
    status = json.loads(reader.run("postroom status --json"))
    assert {w["nick"] for w in status["workers"]} == {"app", "claude", "local", "mine"}
    assert {w["state"] for w in status["workers"]} == {"idle"}
    assert "heard: hello" in reader.run('postroom delegate @mine "hello" --wait')
    reader.run("test -e ~/src/app/made-by-the-agent")
    reader.run("postroom down")


def test_the_table_of_templates_is_the_truth() -> None:
    text = (Path(__file__).parents[2] / PAGE).read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| `([\w-]+)` \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    shown = {name: (program, keys, install) for name, program, keys, install in rows}
    assert set(shown) == {template.name for template in listed()}
    for template in listed():
        program, keys, install = shown[template.name]
        assert program == template.needs.program
        assert all(f"`{key.variable}`" in keys for key in template.needs.keys)
        assert template.needs.tested == "" or f"`{template.needs.install}`" == install


def test_what_the_page_writes_into_a_template_is_taken_by_it() -> None:
    policy, budget, attempts, servers = (
        parse_template(
            '[worker]\nname = "x"\n' + body + '\n[workstation]\ncommand = ["x"]\n' + rest
        )
        for block in blocks(PAGE)
        if block.language == "toml"
        for body, rest in (
            [(block.text.removeprefix("[worker]"), "")]
            if block.text.startswith("[worker]")
            else [("", block.text)]
        )
    )
    assert (attempts.rerun, attempts.attempts, attempts.cancel_grace) == ("safe", 3, 5)
    assert policy.auto_approve
    assert policy.auto_deny
    assert policy.approval_timeout == 3600
    assert (budget.budget_tokens, budget.budget_usd) == (2_000_000, "5.00")
    assert servers.egress == ("https://mcp.example.com/docs",)
    assert servers.credentials == ("docs",)
    assert servers.mcps == ("docs", "notes")
