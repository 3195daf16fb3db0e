"""What a coding agent is told: the prompt of a turn. Pure.

What others have said stands between two marks, so that the agent can tell their words from Postroom's:

    -----8<----- from @alice (person)
    their text
    ----->8----- end

A line of theirs that looks like a mark is moved in by a space.
"""

from __future__ import annotations

from postroom.sidecar.adapters import Incoming, IncomingTask, Sender
from postroom.sidecar.adapters.wording import address, is_post, wants_answer, whole_text
from postroom_a2a.text import one_line, printable

BEGIN = "-----8<-----"
END = "----->8-----"

GO_ON = (
    "You were interrupted while you worked on this. You are in the same session: look at what is done already, and "
    "go on where you were."
)
BEGUN_BEFORE = (
    "An earlier attempt may have done a part of this: look at what is there before you begin."
)

RESULT = (
    "What you say last in this turn is the result of the task. If it cannot be done, say so with "
    "`postroom-agent fail {id} REASON`. If you lack something, ask."
)
ANSWER = "What you say last in this turn is sent to {who} as your answer."
NO_ANSWER = "Nobody waits for an answer; what you say in this turn is sent to nobody."


def prompt_of(request: Incoming | IncomingTask, *, same_session: bool, news: str = "") -> str:
    """The prompt for a message, a post or a task.

    Args:
        same_session: the agent's session is the one in which the request may have been begun.
        news: what Postroom says once, beside it.
    """
    if isinstance(request, IncomingTask):
        said = _task(request, same_session=same_session)
    elif is_post(request):
        said = _post(request)
    else:
        said = _message(request, same_session=same_session)
    return "\n\n".join(filter(None, (said, news)))


def answer_prompt(task: IncomingTask, by: Sender, text: str) -> str:
    """The prompt that goes on with a task after the answer to its question, in the session that asked."""
    head = f"The answer to the question that you asked in task {task.id}:"
    return "\n\n".join((head, quoted(by, text), _result(task)))


def question_text(question: str, options: tuple[str, ...]) -> str:
    """A question as people read it."""
    offered = "".join(f"\n- {one_line(option, 500)}" for option in options)
    return printable(question).strip() + offered


def quoted(sender: Sender, text: str) -> str:
    """What somebody has said, between the marks."""
    kind = f" ({one_line(sender.kind, 20)})" if sender.kind else ""
    lines = (f" {line}" if line.startswith((BEGIN, END)) else line for line in _lines(text))
    return "\n".join((f"{BEGIN} from {address(sender)}{kind}", *lines, f"{END} end"))


def _task(task: IncomingTask, *, same_session: bool) -> str:
    about = [f"A task for you from {address(task.sender)}, id {task.id}."]
    about += [f"Subject: {one_line(task.subject, 200)}"] if task.subject else []
    if task.resumed and task.attempt > 1:
        about.append(GO_ON if same_session else BEGUN_BEFORE)
    history = task.history
    if same_session and history and history[-1].role == "user" and task.resumed:
        answer = whole_text(history[-1].text, history[-1].parts)
        return answer_prompt(task, task.sender, answer)
    if history:
        you = Sender("", "", "")
        said = [
            quoted(task.sender, whole_text(heard.text, heard.parts))
            if heard.role == "user"
            else quoted(you, whole_text(heard.text, heard.parts)).replace("from ", "from you", 1)
            for heard in history
        ]
    else:
        said = [quoted(task.sender, whole_text(task.text, task.parts))]
    return "\n\n".join(("\n".join(about), *said, _result(task)))


def _message(message: Incoming, *, same_session: bool) -> str:
    who = address(message.sender)
    about = [f"A message for you from {who}, id {message.id}."]
    if message.reply_to:
        about.append(f"It answers your message {message.reply_to}.")
    about += [f"Subject: {one_line(message.subject, 200)}"] if message.subject else []
    if message.redelivered:
        about.append(GO_ON if same_session else BEGUN_BEFORE)
    said = quoted(message.sender, whole_text(message.text, message.parts))
    end = ANSWER.format(who=who) if wants_answer(message) else NO_ANSWER
    return "\n\n".join(("\n".join(about), said, end))


def _post(post: Incoming) -> str:
    head = f"A post in the feed {post.to} from {address(post.sender)}. Act only if it concerns you."
    said = quoted(post.sender, whole_text(post.text, post.parts))
    return f"{head}\n\n{said}\n\n{NO_ANSWER}"


def _result(task: IncomingTask) -> str:
    return RESULT.format(id=task.id)


def _lines(text: str) -> list[str]:
    return printable(text).splitlines() or [""]
