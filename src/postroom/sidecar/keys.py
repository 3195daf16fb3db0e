"""Idempotency keys: which sends are the same send (docs/architecture.md, The bus). Pure.

An agent that gets a message a second time handles it a second time, and its answers must not arrive twice. So an
action without a key of its own gets one from the message being handled: its sender and id, the kind of action,
a digest of what is said, and the number of equal actions before. With the digest a second handling that says something
else sends a new message; to drop that one as "already sent" would be a receipt that lies.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from dataclasses import dataclass, field

from postroom.errors import PostroomError
from postroom.protocol.content import Content


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key.

    Attributes:
        text: goes into the message id.
        repeatable: a duplicate is the sidecar's own earlier record, and counts as accepted.
        again: a record may have been sent under this key before.
    """

    text: str
    repeatable: bool
    again: bool = False


OF_TASK = "task/"
"""Begins the source of keys of a task; that of a message begins with its sender's uid."""


@dataclass(slots=True)
class Derivation:
    """The keys of the records that are sent while the agent handles one message.

    Attributes:
        message: sender and id of the message.
        redelivered: the agent may have handled it before.
        over: the agent has said its last word on the message: what it says later does not belong to it.
        trace: `traceparent` of the message, "" for none; what is sent belongs to it, too.
    """

    message: str
    redelivered: bool
    over: bool = False
    trace: str = ""
    _ordinals: Counter[str] = field(default_factory=Counter)

    def key(self, kind: str, recipient: str, said: Content | str) -> Key:
        """The key of the next action of that kind toward `recipient`.

        A `reply` goes by its number alone: a message is answered once, even if the second answer is worded differently.
        """
        what = kind
        if kind != "reply":
            named = f"{recipient}\0{said if isinstance(said, str) else _named(said)}"
            digest = hashlib.sha256(named.encode(errors="replace")).hexdigest()[:16]
            what = f"{kind}:{digest}"
        self._ordinals[what] += 1
        text = f"derived:{self.message}:{what}:{self._ordinals[what]}"
        return Key(text, repeatable=True, again=self.redelivered)


def _named(said: Content) -> str:
    """The content as one text; that of a text alone is the text."""
    if said == Content.of_text(said.text):
        return said.text
    return json.dumps([said.subject, said.thread, *said.parts], sort_keys=True)


@dataclass(frozen=True, slots=True)
class Owner:
    """What an action belongs to.

    Attributes:
        name: actions of one owner are carried out in order; "" for one that keeps its order with all others.
        derivation: makes the action's key; None for a key that is used once.
        fault: the action is refused for that.
    """

    name: str = ""
    derivation: Derivation | None = None
    fault: PostroomError | None = None

    @property
    def task(self) -> str:
        """The id of the task that the action belongs to, "" for none."""
        source = self.derivation.message if self.derivation is not None else ""
        return source.removeprefix(OF_TASK) if source.startswith(OF_TASK) else ""

    @property
    def trace(self) -> str:
        """The trace that the action belongs to, "" for none."""
        return self.derivation.trace if self.derivation is not None else ""


def own_key(kind: str, key: str) -> Key:
    """A key that the agent gave, so that it may repeat the action after a crash."""
    # Hashed: a text out of JSON may hold lone surrogates, which have no UTF-8 form.
    digest = hashlib.sha256(key.encode("utf-8", errors="surrogatepass")).hexdigest()
    return Key(f"own:{kind}:{digest}", repeatable=True, again=True)


def random_key() -> Key:
    """A key that is used once."""
    return Key(f"random:{secrets.token_hex(16)}", repeatable=False)
