"""Questions that an agent asks together, and the one text that answers them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.sidecar.adapters.loose import Record, objects_in, text_in


def title_of_questions(questions: Sequence[Record]) -> str:
    """All of them, one a line."""
    return "\n".join(text_in(question, "question", "header") for question in questions).strip()


def options_of(questions: Sequence[Record]) -> tuple[str, ...]:
    """What may be chosen; several questions have none together."""
    if len(questions) != 1:
        return ()
    labels = (text_in(option, "label") for option in objects_in(questions[0], "options"))
    return tuple(label for label in labels if label)


def answers_to(questions: Sequence[Record], text: str) -> list[str]:
    """The answer to each: a line for each where there are as many, else all of the text for all."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines if len(lines) == len(questions) else [text.strip()] * len(questions)
