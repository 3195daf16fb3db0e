"""Suggestions for a word that is nearly one of those known."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def did_you_mean(
    word: str, known: Iterable[str], *, most: int = 1, form: Callable[[str], str] = str
) -> str:
    """`did you mean X?` with the most similar words, "" where none is similar.

    Args:
        most: how many are named.
        form: how each is written.
    """
    from difflib import get_close_matches  # what ends well needs none of it

    close = get_close_matches(word, list(known), n=most)
    return f"did you mean {' or '.join(map(form, close))}?" if close else ""
