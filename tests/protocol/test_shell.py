"""Which plain commands a line of shell runs, against a shell, and what is none."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom.protocol.patterns import approving
from postroom.protocol.shell import MAX_COMMANDS, MAX_LINE, Plain, line_of

RULES = ("Bash(npm test *)", "Bash(npm test)", "Bash(tail *)", "Bash(cd web && npm test)")

FORMS = (
    *(
        "$(rm x)",
        "`rm x`",
        "$((1))",
        "${x}",
        "$x",
        "$'rm'",
        '$"rm"',
        "<(rm x)",
        ">(rm x)",
        "=(rm x)",
    ),
    *("> out", ">> out", "2> out", "&> out", ">| out", "< in", "<> io", ">& out", "3<&-", "<<< in"),
    *("<<E\nrm\nE\n", "<<-'E'\nrm\nE\n", "& rm x", "|& rm x", "; (rm x)", "; { rm x; }", "(rm x)"),
    *(
        "; f() { rm x; }",
        "; function f { rm; }",
        "\\\n; rm x",
        "\r\nrm x",
        "\u00a0; rm x",
        "\u2028rm",
    ),
    *("; eval rm", "; source x", "; . x", "; exec rm", "| xargs rm", "; find . -exec rm {} +"),
    *("; coproc rm", "; command rm", "; builtin rm", "; env rm", "; ! rm", "; time rm", "; X=1 rm"),
    *(
        "; alias npm=rm",
        "; trap rm EXIT",
        "; export PATH=x",
        "; if rm; then rm; fi",
        "; [[ -n x ]]",
    ),
    *("; for i in x; do rm; done", "; while rm; do rm; done", "; case x in x) rm;; esac", ";; rm"),
    *(
        "; {rm,-rf,x}",
        "; r''m x",
        '; "rm" x',
        "; r\\m x",
        "; $'rm' x",
        "; ~/rm",
        "; rm x",
        "\nrm x",
    ),
    *(
        "&& rm",
        "|| rm",
        "| rm",
        "; cd web",
        "&& cd web",
        "| cd web",
        "; # x",
        "'",
        '"',
        "; unset x",
    ),
    *("; find . -e*", "; find . '-ex'ec rm", "; pushd x", "; hash -p rm npm", "; set -x", "; >out"),
)
"""Each of them runs more than the rules name, or something else, wherever it stands."""

PIECES = st.sampled_from(
    [
        *(
            "npm test",
            "npm test a",
            "tail -5",
            "cd web",
            "'a;b'",
            '"a|b"',
            "2>&1",
            ">/dev/null",
            "''",
        ),
        *(
            "&&",
            "||",
            "|",
            ";",
            "\n",
            " ",
            "a",
            "=",
            "-x",
            "*",
            "[",
            "]",
            "#",
            "~",
            "^",
            "{",
            "}",
            "!",
        ),
        *("'", '"', "\\", "$", "`", "(", ")", "<", ">", "&", "1", "\t", "é", "\u3000", "%", "@"),
    ]
)


@pytest.mark.requirement("coding-policy-no-shell-tricks")
@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["npm test", "npm test a b", "cd web && npm test"]),
    st.sampled_from(["", " ", " && npm test x | tail -1 "]),
    st.sampled_from(FORMS),
    st.sampled_from(["", " ", "; npm test", " | tail -1", "\n"]),
)
def test_no_rule_for_plain_commands_allows_another_form(
    head: str, between: str, form: str, end: str
):
    for command in (f"{head}{between}{form}{end}", f"{head} {form} {end}", f"{head} {form}"):
        assert not approving(RULES, "Bash", {"command": command}), command


@pytest.mark.requirement("coding-policy-no-shell-tricks")
@pytest.mark.parametrize("form", FORMS)
def test_each_other_form_is_asked(form: str):
    command = f"npm test {form}"
    assert not approving(RULES, "Bash", {"command": command})
    assert not approving(RULES, "shell", {"command": ["npm", "test", form, ";"]})


RECORDER = r"""
exec 9>&1
command_not_found_handle() {
    local said
    printf -v said '%s\x1f' "${PWD#"$HERE"}" "$@"
    printf '%s\n' "$said" >&9
}
PATH=/nowhere
set -f
"""
"""Has bash say what it would run: in one write, since the commands of a pipe run at once."""


@pytest.mark.requirement("coding-policy-no-shell-tricks")
@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=9), st.booleans())
@example(["npm test", "\n", ";", "a"], True)
@example(["cd web", "&&", "a", "2>&1", "|", "tail -5", ">/dev/null"], True)
@example(["a", "'", "#", "'", ";", "a", "#", ";", "b"], False)
def test_a_shell_runs_nothing_but_the_plain_commands_that_are_read(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], spaced: bool
):
    command = (" " if spaced else "").join(pieces)
    line = line_of(command)
    if not line.commands or "\n" in " ".join(each.text for each in line.commands):
        return
    here = tmp_path_factory.getbasetemp() / "here"
    (here / "web").mkdir(parents=True, exist_ok=True)

    ran = _ran(command.strip(), here)

    try:
        read = {(each.folder, *shlex.split(each.text)) for each in line.commands}
    except ValueError:  # a quote that is left open: a shell runs nothing
        read = set()
    assert ran <= {tuple(each) for each in read}


def _ran(command: str, here: Path) -> set[tuple[str, ...]]:
    """What bash runs of a command: the folder, and the words of each program."""
    bash = shutil.which("bash") or "bash"
    said = subprocess.run(
        [bash, "--norc", "--noprofile", "-c", f"{RECORDER}{command}\n"],
        cwd=here,
        env={"HERE": str(here), "HOME": "~"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=20,
    )
    lines = (each.split("\x1f")[:-1] for each in said.stdout.decode().split("\n") if each)
    return {(folder.removeprefix("/"), *words) for folder, *words in lines}


def test_a_long_or_deep_line_is_asked_in_a_moment():
    before = time.process_time()
    for line in (
        "a;" * MAX_COMMANDS + "b",
        "a && " * 700 + "b",
        "(" * 4000,
        "$(" * 2000,
        "<<a " * 1000,
        "a | " * 1000 + "b",
        "a; " + "b" * MAX_LINE,
        "'" * 3001 + ";",
        "a; \ud800",
    ):
        assert line_of(line).odd
    assert line_of("; ".join("a" * MAX_COMMANDS)).commands == (Plain("", "a"),) * MAX_COMMANDS
    assert time.process_time() - before < 2.0


@pytest.mark.requirement("coding-policy-no-shell-tricks")
def test_the_grammar_is_loaded_for_a_line_with_operators_alone():
    program = """
import sys
from postroom.sidecar.turns.policy import Policy
policy = Policy(approve=("Bash(npm test *)", "Read"))
assert policy.judge("Bash", {"command": "npm test a"}).allow
assert policy.judge("Bash", {"command": "rm a"}) is None
assert "tree_sitter" not in sys.modules
assert policy.judge("Bash", {"command": "npm test a; npm test b"}).allow
assert "tree_sitter" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
