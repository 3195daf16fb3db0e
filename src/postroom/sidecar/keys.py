"""Idempotency keys: which sends are the same send (docs/architecture.md, The bus). Pure.

A message that is delivered again is handled again, and what the agent then sends must not arrive twice. So an
action without a key of its own gets one from the message being handled: its sender and id, the kind of action,
a digest of the text, and how many of those came before. The digest keeps apart what a second handling says
differently: to drop that as "already sent" would be a receipt that lies.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key.

    Attributes:
        text: goes into the message id.
        repeatable: it is ours alone, so that a duplicate counts as accepted: it was sent before.
        again: whether it may have been sent before, as far as is known.
    """

    text: str
    repeatable: bool
    again: bool = False


@dataclass(slots=True)
class Derivation:
    """Keys of what is sent while one message is handled.

    Attributes:
        message: sender and id of the message.
        redelivered: whether it may have been handled before.
    """

    message: str
    redelivered: bool
    _ordinals: Counter[str] = field(default_factory=Counter)

    def key(self, kind: str, recipient: str, text: str) -> Key:
        """The key of the next action of that kind toward `recipient`; a `reply` is told apart by its place alone.

        The same message is answered once, even if the second handling words it differently.
        """
        what = kind
        if kind != "reply":
            digest = hashlib.sha256(f"{recipient}\0{text}".encode(errors="replace")).hexdigest()[
                :16
            ]
            what = f"{kind}:{digest}"
        self._ordinals[what] += 1
        text = f"derived:{self.message}:{what}:{self._ordinals[what]}"
        return Key(text, repeatable=True, again=self.redelivered)


def own_key(kind: str, key: str) -> Key:
    """The key that the agent gave; it may repeat an action after a crash of its own."""
    # Hashed, since a text out of JSON may hold lone surrogates, which have no UTF-8 form.
    digest = hashlib.sha256(key.encode("utf-8", errors="surrogatepass")).hexdigest()
    return Key(f"own:{kind}:{digest}", repeatable=True, again=True)


def random_key() -> Key:
    """A key that nothing else has."""
    return Key(f"random:{secrets.token_hex(16)}", repeatable=False)
