"""Identifiers: uids, nicks, projects, message ids (docs/architecture.md, The bus).

A uid or a project ends up as one token of a NATS subject and, through the signing key's template, in the
permissions of a credential. `*` or `>` there would open every subject, so nothing that failed these checks
may ever reach the minter.
"""

from __future__ import annotations

import hmac
import re
import unicodedata
from collections.abc import Collection

from postroom.errors import Conflict, InvalidName

UID = re.compile(r"[0-9a-f]{32}")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MAX_ADDRESS = 130
"""Characters of `@nick.org`: cut off, the name of an organisation would be missing that tells whose agent it is."""

MESSAGE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

ID_PREFIX = re.compile(r"[0-9a-f]{4,31}")
"""The beginning of an id, which people may give in place of the full id."""

MAX_CANDIDATES = 8
CANDIDATE_DIGITS = 12
"""The most ids that an error lists where a beginning fits several, and the digits of each."""

AGENT_COMMAND = "postroom-agent"
"""What an agent reaches its sidecar by, in a shell or as a server of MCP."""

CONTROL_PLANE = "postroom"
"""The reserved uid of the control plane. It is not 32 hex digits, so no agent can get it."""

NO_PROJECT = "-"
"""The project token that no project can have: `-` is not a valid name."""

RESERVED_NICKS = frozenset(
    {
        "admin",
        "administrator",
        "all",
        "anonymous",
        "anybody",
        "anyone",
        "control",
        "control-plane",
        "daemon",
        "everybody",
        "everyone",
        "gateway",
        "here",
        "human",
        "humans",
        "localhost",
        "mailer-daemon",
        "me",
        "myself",
        "nats",
        "nil",
        "no-reply",
        "nobody",
        "none",
        "null",
        "official",
        "operator",
        "owner",
        "people",
        "person",
        "post-office",
        "postmaster",
        "postroom",
        "root",
        "self",
        "sidecar",
        "somebody",
        "someone",
        "staff",
        "sudo",
        "superuser",
        "sysadmin",
        "system",
        "undefined",
        "unknown",
        "user",
        "users",
        "webmaster",
        "you",
    }
)
"""Nicks that stand for people in general, for the system, or for nobody; no agent and no person gets one."""

# Letters and digits that people read as one another. Nicks are ASCII, so this short table does what the
# Unicode confusables list does for wider alphabets: two nicks with one skeleton look alike in a terminal.
_SKELETON = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s", "_": "-"})


def is_uid(text: str) -> bool:
    """Whether `text` is the uid of an agent, or the control plane's reserved one."""
    return UID.fullmatch(text) is not None or text == CONTROL_PLANE


def check_uid(text: str) -> str:
    """`text` if it is the uid of an agent.

    Raises:
        InvalidName: it is anything else, the control plane's reserved uid included.
    """
    if UID.fullmatch(text) is None:
        raise InvalidName(f"{text!r} is not a uid: 32 lower-case hexadecimal digits are")
    return text


def check_name(text: str, what: str = "name") -> str:
    """`text` if it can be a nick, project or role.

    Raises:
        InvalidName: it does not match `[a-z0-9][a-z0-9_-]{0,63}`.
    """
    if NAME.fullmatch(text) is None:
        raise InvalidName(
            f"{text!r} is not a valid {what}",
            remedy="1 to 64 of a-z 0-9 _ -, beginning with a letter or digit",
        )
    return text


def check_address(ref: str) -> str:
    """`ref` without its `@`, if it can be `nick`, `nick.org` or a uid.

    Raises:
        InvalidName: it is none of them.
    """
    nick, dot, org = ref.removeprefix("@").partition(".")
    check_name(nick, "nick")
    if dot:
        check_name(org, "organisation")
    return f"{nick}{dot}{org}"


def skeleton(nick: str) -> str:
    """The look of `nick`: people can confuse two nicks with the same skeleton."""
    folded = unicodedata.normalize("NFKC", nick).casefold().translate(_SKELETON)
    return folded.replace("-", "").replace("rn", "m").replace("vv", "w")


_RESERVED_SKELETONS = frozenset(skeleton(nick) for nick in RESERVED_NICKS)


def check_nick(text: str) -> str:
    """`text` if an agent may have that nick.

    Raises:
        InvalidName: malformed, it impersonates people or the system, or it could be read as a uid.
    """
    check_name(text, "nick")
    if is_uid(text):
        raise InvalidName(f"the nick {text!r} could be taken for the uid of another agent")
    if skeleton(text) in _RESERVED_SKELETONS:
        raise InvalidName(f"the nick {text!r} is reserved for people or the system")
    return text


def message_id(secret: bytes, recipient: str, key: str) -> str:
    """The id of a message, which is also its `Nats-Msg-Id`: 32 hex digits.

    An HMAC over recipient and idempotency key under a secret that only the sender has. So one key and one recipient
    give one message, and nobody else can use the id first to suppress it (a stream de-duplicates by id alone).
    """
    # An agent chooses the key, so it may hold a lone surrogate, which has no UTF-8 form.
    named = f"{recipient}\0{key}".encode("utf-8", "surrogatepass")
    return hmac.digest(secret, named, "sha256").hex()[:32]


def only_one(prefix: str, found: Collection[str], what: str) -> str | None:
    """The one id among `found`, which all begin with `prefix`; None for no id.

    Raises:
        Conflict: there are several; the error names them.
    """
    if len(found) > 1:
        named = [one[:CANDIDATE_DIGITS] for one in sorted(found)[:MAX_CANDIDATES]]
        more = ", ..." if len(found) > MAX_CANDIDATES else ""
        raise Conflict(
            f"several {what} begin with {prefix}: {', '.join(named)}{more}",
            remedy="give more digits of the id",
        )
    return next(iter(found), None)


def check_message_id(text: str) -> str:
    """`text` if it can be the id of a message.

    Raises:
        InvalidName: it does not match `[A-Za-z0-9_-]{1,64}`.
    """
    if MESSAGE_ID.fullmatch(text) is None:
        raise InvalidName(f"{text!r} is not a message id", remedy="1 to 64 of A-Z a-z 0-9 _ -")
    return text
