"""How a command is declared: what it takes, in the words of its help, which operation it asks, and how it answers.

`asks` is for a command that asks one operation and prints the answer: its function prints and does no more. `answers`
is for one that does more: its function returns what is JSON, and what is said in lines. Both give it `--json`,
`--state`, `--url` and `--org`. A parameter is declared by a text:

    "ref @NICK"                  an argument, its name and how the help shows it; [ID] may be left out, NICK... repeated
    "--limit N: The most shown." an option with a value, "" if not given
    "-f --follow: Go on."        a flag
    "--for agent @NICK: Whose."  a parameter `agent`, since `for` is no name
    "--host hosts NAME...: Its." an option that may be repeated

What the operation has as a field gets type, choices and default from `protocol.operations` and `client.words`. Anything
else is a decorator of click, in its place among the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import click

from postroom.cli.options import connect, json_option, screen_options, state_option
from postroom.cli.output import print_json
from postroom.protocol.limits import MAX_PAGE

if TYPE_CHECKING:
    from postroom.client.words import Words

Parameter = str | Callable[[Any], Any]
"""A text, or a decorator of click."""

Said = str | Iterable[str] | Callable[[], object]
"""What is said in lines: one, several, or what prints them."""

Answer = tuple[object, Said] | int | None
"""What is JSON, and what is said; else an exit status of what has printed itself."""

Field = tuple[str, tuple[str, ...]]
"""Type and choices of a field of an operation."""

NOTHING: Mapping[str, Field] = MappingProxyType({})

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def takes(*parameters: Parameter, of: str = "") -> Decorator:
    """Give a command these parameters, in the order of its help; `of` has the operations whose fields they are."""
    fields: dict[str, Field] = {}
    for operation in of.split():
        fields |= fields_of(operation)
    made = [parameter(each, fields) if isinstance(each, str) else each for each in parameters]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for parameter in reversed(made):
            command = parameter(command)
        return command

    return decorate


def answers(
    *parameters: Parameter,
    org: bool = True,
    here: bool = False,
    screen: bool = False,
    post_room: bool = True,
    of: str = "",
) -> Decorator:
    """Make a command of a function that returns an `Answer`; it gets `as_json` if it names that.

    Args:
        org: it is for one organisation.
        here: it is for a post room of this machine.
        screen: it may open the screen.
        post_room: it is for a post room at all.
        of: as for `takes`.
    """

    def decorate(does: Callable[..., Answer]) -> Callable[..., Any]:
        told = "as_json" in _names(does)

        @wraps(does)
        def run(*, as_json: bool, **given: Any) -> int | None:
            if click.get_current_context().invoked_subcommand is not None:
                return None
            done = does(**given, as_json=as_json) if told else does(**given)
            if not isinstance(done, tuple):
                return done
            record, said = done
            if as_json:
                print_json(record)
            elif callable(said):
                said()
            else:
                for line in (said,) if isinstance(said, str) else said:
                    click.echo(line)
            return None

        options = [json_option, *([screen_options] if screen else [])]
        options += [state_option(org=org, here=here)] if post_room else []
        return takes(*parameters, *options, of=of)(run)

    return decorate


def asks(operation: str, *parameters: Parameter, named: str = "", org: bool = True) -> Decorator:
    """Make a command that asks `operation` of a function that prints the answer.

    The function is called with the answer and, by name, those parameters that it names. JSON is the answer; as an
    object, where the client's method gives a field of it.

    Args:
        named: the only field of the JSON; of what answers nothing its value is the first argument.
        org: as for `answers`.
    """

    def decorate(prints: Callable[..., object]) -> Callable[..., Any]:
        shown = _names(prints)[1:]

        @wraps(prints)
        def run(**given: Any) -> Answer:
            words = _words(operation)
            with connect() as client:
                answer = _asked(getattr(client, words.name), operation, given)
            key = named or words.gives
            about = next(iter(given.values()), "") if answer is None else answer
            record = {key: about} if key else answer
            return record, partial(prints, answer, **{name: given[name] for name in shown})

        vars(run)["operation"] = operation  # for who reads the commands
        return answers(*parameters, org=org, of=operation)(run)

    return decorate


def _asked(ask: Callable[..., Any], operation: str, given: dict[str, Any]) -> Any:
    """The answer to what was given on the command line; with a PIN where the operation takes one."""
    known = fields_of(operation)
    sent = {name: value for name, value in given.items() if name in known and value is not None}
    if "pin_file" not in given:
        return ask(**sent)
    from postroom.cli.deciding import pin_of

    return pin_of(given["pin_file"]).used(lambda pin: ask(**sent, pin=pin))


def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    code = cast("Any", function).__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


# ── what an operation knows ──


def _words(operation: str) -> Words:
    from postroom.client.words import WORDS, Words

    found = WORDS[operation]
    return found if isinstance(found, Words) else found[0]


def fields_of(operation: str) -> dict[str, Field]:
    """Type and choices of each field of an operation, by the name of its argument.

    Raises:
        KeyError: there is no such operation.
    """
    from postroom.protocol.operations import OPERATIONS

    row = cast("dict[str, Any]", OPERATIONS[operation])
    named = {field: argument for argument, field in _words(operation).called.items()}
    choices = row.get("choices", {})
    return {
        named.get(name, name): (kind, choices.get(name, ()))
        for place in ("path", "query", "body")
        for name, kind, _ in row.get(place, ())
    }


# ── parameters from their texts ──


def _agents(*asked: Any) -> list[str]:
    from postroom.cli.completion import agents  # loaded by a shell alone

    return agents(*asked)


def parameter(text: str, fields: Mapping[str, Field] = NOTHING, **about: Any) -> Decorator:
    """A parameter from its text; `about` has what click is told beyond that, instead of what a field says."""
    left, _, help_text = text.partition(": ")
    words = left.split()
    flags = [word for word in words if word.startswith("-")]
    names = [word for word in words if word.isidentifier() and word.islower()]
    shown = "".join(word for word in words if word not in {*flags, *names})
    several = shown.rstrip("]").endswith("...")
    completed: dict[str, Any] = {"shell_complete": _agents} if shown in COMPLETED else {}
    if not flags:
        left_out = shown.startswith("[")
        number: dict[str, Any] = {"nargs": -1} if several else {"default": ""} if left_out else {}
        about = {"required": not left_out, **number, **completed, **about}
        return click.argument(*names, metavar=shown or None, **about)
    name = (names or [max(flags, key=len).lstrip("-").replace("-", "_")])[0]
    usual: dict[str, Any] = (
        {"multiple": True} if several else {"default": ""} if shown else {"is_flag": True}
    )
    about = about or (_typed(*fields[name], shown) if name in fields else {}) or usual
    about |= {"metavar": shown.removesuffix("...") or None, "help": help_text, **completed}
    return click.option(*flags, *names, **about)


COMPLETED = {"@NICK", "NICK...", "[NICK]..."}


def _typed(kind: str, choices: tuple[str, ...], shown: str) -> dict[str, Any]:
    """How click takes a field of that type; what has no value in the help is a flag."""
    several: dict[str, Any] = {"multiple": True} if kind == "list" else {}
    if choices:
        return {"type": click.Choice(choices), **several}
    return {"type": click.FloatRange(0)} if kind == "float" and shown else several


def limit_option(default: int, help_text: str) -> Decorator:
    """`--limit N`: the most entries of a list."""
    return number_option(f"--limit N: {help_text}", click.IntRange(1, MAX_PAGE), default)


def number_option(text: str, type_: click.ParamType, default: float) -> Decorator:
    """An option with a number, whose default the help shows."""
    return parameter(text, type=type_, default=default, show_default=True)
