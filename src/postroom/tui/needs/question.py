"""The dialog about a question: of a task, or of an agent in the turn for a message."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import work
from textual.binding import Binding, BindingType
from textual.events import Key as KeyPressed
from textual.message import Message
from textual.widget import Widget
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from postroom.client.answering import decided
from postroom.client.belonging import refuse_agents
from postroom.errors import Conflict, PostroomError
from postroom.lines.inputs import visible
from postroom.lines.rows import Row, Style
from postroom.protocol.approvals import Decision
from postroom.tui.dialogs import with_pin
from postroom.tui.needs.dialog import Key, Keys, NeedDialog, Phase, expires_in, whole
from postroom.tui.news import CHANNEL
from postroom.view.approvals import OfferedAnswer, choices_in, choices_of, ending
from postroom.view.needs import NeedKind
from postroom.view.tasks import TaskUpdates, is_question, short
from postroom.view.words import clock, lines_of
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient
    from postroom.protocol.shapes import Approval, Task, TaskEvent
    from postroom.view.needs import Need

UPDATES = 5
"""Changes of the task that stand below its question."""

PAGE, PAGES = 200, 5
"""Changes of a task in one answer, and answers that are read for the last ones."""

_KEYS = (
    Key("enter", "send", "send"),
    Key("ctrl-j", "new line", "new_line"),
    Key("ctrl-t", "task", "task"),
    Key("esc", "later", "back"),
    Key("alt-→", "next", "following"),
)


class AnswerLine(TextArea):
    """Some lines of text: Enter sends, shift-enter or ctrl-j begins another."""

    class Submitted(Message):
        """The answer is there."""

    def on_key(self, event: KeyPressed) -> None:
        """Before Textual's own handler, which takes the other keys."""
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.post_message(self.Submitted())
            return
        if event.key in ("shift+enter", "ctrl+j"):
            event.stop()
            event.prevent_default()
            self.insert("\n")


@dataclass(frozen=True, slots=True)
class _Question:
    """What the post room has of a question.

    Attributes:
        over: how it ended, "" while it waits.
        seq: of the record that asks.
    """

    rows: Sequence[Row]
    choices: Sequence[OfferedAnswer]
    over: str
    seq: int
    default: str = ""
    asked: Approval | None = None
    task: Task | None = None


class QuestionDialog(NeedDialog, inherit_bindings=False):
    """Asks a person for words."""

    DEFAULT_CSS = """
    QuestionDialog OptionList { height: auto; max-height: 8; margin-top: 1; }
    QuestionDialog.-narrow OptionList { max-height: 4; }
    QuestionDialog.-narrow AnswerLine { height: 2; margin-top: 0; }
    QuestionDialog AnswerLine { height: 3; margin-top: 1; }
    """
    # Letters and digits begin an answer, whatever has the focus.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "later"),
        Binding("ctrl+t", "task", "task"),
        Binding("alt+right,ctrl+right", "following", "next"),
        Binding("alt+left,ctrl+left", "previous", "previous"),
    ]
    PHASES: ClassVar[dict[str, frozenset[Phase]]] = NeedDialog.PHASES | {
        **dict.fromkeys(("send", "new_line", "type"), frozenset({Phase.ASK})),
    }

    def __init__(
        self, need: Need, place: Callable[[], tuple[int, int]], *, by_itself: bool
    ) -> None:
        super().__init__(need, place, by_itself=by_itself)
        self._question: _Question | None = None

    def more(self) -> Iterable[Widget]:
        """What may be chosen, and a text."""
        yield OptionList(id="choices", classes="phase -ask", markup=False, compact=True)
        yield AnswerLine(
            id="answer",
            classes="phase -ask",
            tab_behavior="focus",
            placeholder="your answer",
            compact=True,
        )
        yield Keys(_KEYS, classes="phase -ask")

    def on_mount(self) -> None:
        """No cursor blinks."""
        self.query_one(AnswerLine).cursor_blink = False

    # ── reading ──

    async def fetched(self, client: AsyncClient) -> _Question:
        """See `NeedDialog`."""
        return await _read(client, self.need)

    def take(self, found: _Question) -> None:
        """See `NeedDialog`."""
        if self._question is None:
            self._show(found)
        if found.over:
            self.over(found.over)
        elif self._question is not None and found.seq != self._question.seq:
            self._again(found)

    def _show(self, found: _Question) -> None:
        self._question = found
        choices = self.query_one(OptionList)
        choices.clear_options()
        for number, choice in enumerate(found.choices, 1):
            about = f"  {one_line(visible(choice.about), 200)}" if choice.about else ""
            prompt = Text(f"{number} {one_line(visible(choice.label), 200)}")
            prompt.append(about, "dim")
            choices.add_option(Option(prompt))
        self.show_rows(found.rows, lambda: expires_in(self.need, found.default), found.task)
        choices.display = bool(found.choices)
        if count := len(found.choices):
            numbers = "1" if count == 1 else f"1 to {min(count, 9)}"
            self.query_one(
                AnswerLine
            ).placeholder = f"{numbers} marks an answer, Enter sends it; or type your own"
        (choices if found.choices else self.query_one(AnswerLine)).focus()

    def who_asks(self) -> str:
        """See `NeedDialog`."""
        to_be_let_in = self.need.record and self.need.record.get("state") == "auth-required"
        return super().who_asks() + (" to be let in" if to_be_let_in else "")

    def _again(self, found: _Question) -> None:
        """It asks something else now: what was typed stays, and was not sent."""
        self._show(found)
        self.say("it asks something else now; nothing was sent", "bad")

    @property
    def types(self) -> bool:
        """Whether an answer is begun."""
        return self.phase is Phase.ASK and bool(self.query_one(AnswerLine).text)

    # ── answering ──

    def on_answer_line_submitted(self, _: AnswerLine.Submitted) -> None:
        """Send what was typed."""
        if self.check_action("send", ()):
            self.action_send()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Send what was chosen."""
        if self._question is not None and self.check_action("send", ()):
            self._send(self._question.choices[event.option_index].label)

    def on_key(self, event: KeyPressed) -> None:
        """A number marks a choice, which Enter sends; anything else that is typed is the answer's text."""
        super().on_key(event)
        line, choices = self.query_one(AnswerLine), self.query_one(OptionList)
        char = event.character or ""
        if not event.is_printable or line.has_focus or not self.check_action("type", ()):
            return
        event.stop()
        if char in "123456789" and int(char) <= choices.option_count:
            choices.highlighted = int(char) - 1
            choices.focus()
        else:
            line.focus()
            line.insert(char)

    def action_send(self) -> None:
        """Send the text, or the choice that is marked if there is no text."""
        asked = self._question
        text = self.query_one(AnswerLine).text.strip()
        marked = self.query_one(OptionList).highlighted
        if text:
            self._send(text)
        elif asked is not None and marked is not None and self.query_one(OptionList).has_focus:
            self._send(asked.choices[marked].label)
        else:
            self.query_one(AnswerLine).focus()
            self.say("type the answer first", "bad")

    def action_new_line(self) -> None:
        """Begin another line."""
        line = self.query_one(AnswerLine)
        line.insert("\n")
        line.focus()

    @work(exclusive=True, group="answer")
    async def _send(self, text: str) -> None:
        asked = self._question
        if asked is None:
            return
        client, need = self.port.client, self.need
        self.enter(Phase.BUSY)
        self.say("…")
        try:
            found = await _read(client, need)
            if found.over:
                self.over(f"your answer came too late: {found.over}", "bad")
            elif found.seq != asked.seq:
                self._again(found)
            elif asked.asked is None:
                await client.answer_task(need.id, text)
                self.done(f"answered {short(need.id)} of {need.who}")
            else:
                await self._say(asked.asked, text)
        except Conflict as error:
            self.over(f"your answer came too late: {error.message}", "bad")
        except PostroomError as error:
            self.enter(Phase.ASK)
            self.query_one(OptionList).display = bool(asked.choices)
            self.say(whole(error), "bad")

    async def _say(self, asked: Approval, text: str) -> None:
        """Answer what is asked in the turn for a message."""
        client = self.port.client

        async def send(pin: str) -> str:
            refuse_agents("approve")
            given = {"text": text}
            return await decided(
                client,
                asked["worker"]["uid"],
                asked["id"],
                Decision.EDITED.value,
                given=given,
                pin=pin,
                channel=CHANNEL,
            )

        await with_pin(self.port, send)
        self.done(f"answered {short(asked['id'])} of {self.need.who}")


async def _read(client: AsyncClient, need: Need) -> _Question:
    now = time.time()
    if need.kind is NeedKind.QUESTION:
        task = await client.task(need.id)
        return _of_task(task, await _last_events(client, need.id), now)
    asked = await client.approval(need.id, worker=need.worker)
    over = "" if asked["state"] == Decision.PENDING else ending(asked)
    rows = [*_text(asked["title"])]
    if asked["reason"]:
        rows.append(Row.of(f"why: {visible(asked['reason'])}", Style.DIM, indent=2, wraps=True))
    choices = choices_of(asked["input"])
    return _Question(rows, choices, over, asked["seq"], asked["default"], asked)


def _of_task(task: Task, events: Sequence[TaskEvent], now: float) -> _Question:
    over = "" if is_question(task["state"]) else _over(task, events)
    choices = choices_in(task["status_text"])
    asked = lines_of(task["status_text"])
    text = "\n".join(asked[: len(asked) - len(choices)])
    # The question comes first: what stands below may be out of sight.
    rows = [*_text(text), *_updates(task, events, now)]
    return _Question(rows, choices, over, task["seq"], task=task)


def _over(task: Task, events: Sequence[TaskEvent]) -> str:
    """What became of a question: the answer if that is among the last changes."""
    answers = [event["answer"] for event in events if event.get("answer")]
    said = f"it was answered: “{one_line(answers[-1], 80)}”" if answers else "it waits no more"
    return f"{said}; the task is {task['state']}"


def _updates(task: Task, events: Sequence[TaskEvent], now: float) -> Iterator[Row]:
    updates = TaskUpdates(task["worker"])
    # The last one is the question itself.
    said = [(event, *updates.parts(event)) for event in events if event["seq"] != task["seq"]]
    if said:
        yield Row.of("before that:", Style.DIM)
    for event, label, text in said[-UPDATES:]:
        first = lines_of(text)[0] if text.strip() else ""
        line = f"{clock(event['at'], now)} {label}{f': {first}' if first else ''}"
        yield Row.of(line, Style.DIM, indent=2, wraps=True)


def _text(text: str) -> Iterator[Row]:
    for line in lines_of(text):
        yield Row.of(visible(line), indent=2, wraps=True)


async def _last_events(client: AsyncClient, task: str) -> list[TaskEvent]:
    found: list[TaskEvent] = []
    for _ in range(PAGES):
        page = await client.task_events(task, after=found[-1]["seq"] if found else 0, limit=PAGE)
        found = [*found, *page][-UPDATES - 1 :]
        if len(page) < PAGE:
            break
    return found
