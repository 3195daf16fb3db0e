"""How a text is searched: what counts as the same letter, and the pieces by which an index finds a word.

Capitals, accents of Latin, Greek and Cyrillic letters, and forms of one character (`ﬁ`, full width) do not count. A
word of three letters or more is found anywhere in a text, one of two or one at the beginning of a word. Letters that
have no capitals (Chinese, Japanese, Thai, Arabic) are found anywhere, since some of those scripts have no spaces.

The pieces of a text are its runs of three letters, and shorter ones where shorter words are found. Both databases
index the same pieces, so a search gives the same on both. They are more than the words say (`abcd` and `bcde` do not
make `abcde`), so what was found is looked at again (`Wanted.is_in`).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable

from postroom.errors import InvalidInput
from postroom.protocol.limits import MAX_WORDS

LONGEST = 40_000
"""Letters of a text that are indexed. A row of the index in PostgreSQL ends at 1 MiB, which its pieces stay below."""

RUN = 3
"""Letters of a piece."""

_ACCENTS = re.compile("[\u0300-\u036f]+")
_STARTS = (re.compile(r"(?<!\w)\w\S?"), re.compile(r"(?<!\S)[^\w\s]\S?"))
"""Where a word begins: behind a sign, and behind a space."""

# In the private area of Unicode, so that no sign means anything to a tokenizer or in a query.
_PLAIN = {at: 0xE000 + at for at in range(128) if not chr(at).isalnum()}
_BEGINS = "\ue100"
_MARK = "\ue101"


def words_of(text: str, *others: str) -> list[str]:
    """The words of a search for `text`.

    Raises:
        InvalidInput: there are too many, or it or `others` hold what no text in the database has.
    """
    words = text.split()
    if len(words) > MAX_WORDS:
        raise InvalidInput(f"a search has at most {MAX_WORDS} words")
    if any("\0" in each for each in (text, *others)):
        raise InvalidInput("a search has no NUL characters")
    return words


def folded(text: str) -> str:
    """`text` with one form of each letter."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", _ACCENTS.sub("", apart))


def mark(kind: str, value: str) -> str:
    """A piece that stands for a fact about a text, such as who sent it."""
    return f"{_MARK}{kind}{hashlib.sha256(value.encode('utf-8', 'replace')).hexdigest()[:16]}"


def pieces(texts: Iterable[str], marks: Iterable[str] = ()) -> str:
    """What the index holds of a text, separated by spaces."""
    found = dict.fromkeys(marks)
    text = folded("\n".join(texts))[:LONGEST]
    for word in text.split():
        found.update(dict.fromkeys(word[at : at + RUN] for at in range(len(word) - RUN + 1)))
    for start in _STARTS:
        for two in set(start.findall(text)):
            found[_BEGINS + two] = found[_BEGINS + two[0]] = None
    if not text.isascii():
        found.update(dict.fromkeys(_short(text)))
    return " ".join(found).translate(_SPACED)


_SPACED = {at: to for at, to in _PLAIN.items() if at != ord(" ")}


def _short(text: str) -> Iterable[str]:
    """The letters without capitals, and pairs of them."""
    last = ""
    for letter in text:
        now = letter if _is_caseless(letter) else ""
        if now:
            yield now
            if last:
                yield last + now
        last = now


def _is_caseless(letter: str) -> bool:
    return not letter.isascii() and letter.isalpha() and letter.upper() == letter.lower()


class Wanted:
    """The words of a search.

    Args:
        marks: pieces that what is found has, beside the words.
    """

    def __init__(self, words: Collection[str], marks: Iterable[str] = ()) -> None:
        self._words = folded(" ".join(words)).split()
        self._marks = list(marks)

    @property
    def pieces(self) -> list[str]:
        """The pieces that what is found has."""
        found = dict.fromkeys(self._marks)
        for word in self._words:
            found.update(dict.fromkeys(_of(word[:LONGEST])))
        return [piece.translate(_PLAIN) for piece in found]

    def is_in(self, *texts: str) -> bool:
        """Whether each word is in them."""
        if not self._words:
            return True
        text = folded("\n".join(texts))
        return all(_is_in(word, text) for word in self._words)


def _of(word: str) -> list[str]:
    if len(word) >= RUN:
        return [word[at : at + RUN] for at in range(len(word) - RUN + 1)]
    if all(map(_is_caseless, word)):
        return [word]
    return [_BEGINS + word]


def _is_in(word: str, text: str) -> bool:
    if len(word) >= RUN or all(map(_is_caseless, word)):
        return word in text
    before = r"\w" if re.match(r"\w", word) else r"\S"
    return re.search(rf"(?<!{before}){re.escape(word)}", text) is not None
