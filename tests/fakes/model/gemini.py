"""Google's generateContent: `POST /v1beta/models/MODEL:streamGenerateContent` as a stream, `:generateContent` whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.fakes.model.dialect import (
    CACHED_TOKENS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REASONING_TOKENS,
    event,
    words,
)
from tests.fakes.model.script import (
    Ask,
    Call,
    Conversation,
    Edit,
    Fail,
    Run,
    Runs,
    Say,
    Step,
    offered,
)

_STATES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}


def takes(path: str) -> bool:
    """See `Dialect`."""
    return path.endswith((":streamGenerateContent", ":generateContent", ":countTokens"))


def read(body: Mapping[str, Any]) -> Conversation:
    """See `Dialect`."""
    user, results = "", []
    for content in body.get("contents", []):
        if content.get("role") == "model":
            continue
        parts = content.get("parts", [])
        done = [part["functionResponse"] for part in parts if "functionResponse" in part]
        said = "\n".join(part["text"] for part in parts if part.get("text"))
        if done:
            results += [_text(answer.get("response")) for answer in done]
        elif said:
            user, results = said, []
    return Conversation(user, tuple(results), tuple(_names(body)))


def stream(step: Step, path: str, body: Mapping[str, Any]) -> Iterator[bytes]:
    """See `Dialect`."""
    *most, last = _pieces(step, _names(body))
    for piece in most:
        yield event(_answer([piece]))
    yield event(_answer([last], last=True))


def whole(step: Step, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """See `Dialect`."""
    if path.endswith(":countTokens"):
        return {"totalTokens": INPUT_TOKENS}
    if path.endswith(":streamGenerateContent"):
        return None
    return _answer(_pieces(step, _names(body)), last=True)


def failure(status: int) -> dict[str, Any]:
    """See `Dialect`."""
    state = _STATES.get(status, "INTERNAL")
    return {"error": {"code": status, "message": "scripted failure", "status": state}}


def _pieces(step: Step, tools: Sequence[str]) -> list[dict[str, Any]]:
    """The parts in which an answer comes; a call is preceded by words, for which a slow step does not wait."""
    thought = [{"text": step.thought, "thought": True}] if step.thought else []
    match step.deed:
        case Say(text) | Ask(text):
            return [*thought, *({"text": word} for word in words(text))]
        case Run(command):
            deed = _call("run_shell_command", command=command, description="scripted")
        case Edit(file, text):
            deed = _call("write_file", file_path=file, content=text)
        case Call(tool, arguments):
            deed = _call(offered(tool, tools), **json.loads(arguments))
        case Runs() | Fail():
            raise ValueError("this dialect has no answer for it")
    return [*thought, {"text": "Using a tool."}, deed]


def _call(name: str, **arguments: str) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": arguments}}


def _answer(parts: list[dict[str, Any]], *, last: bool = False) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
    answer = {"candidates": [candidate], "modelVersion": "fake"}
    if not last:
        return answer
    return answer | {
        "candidates": [candidate | {"finishReason": "STOP"}],
        "usageMetadata": _usage(),
    }


def _usage() -> dict[str, int]:
    return {
        "promptTokenCount": INPUT_TOKENS,
        "cachedContentTokenCount": CACHED_TOKENS,
        "candidatesTokenCount": OUTPUT_TOKENS - REASONING_TOKENS,
        "thoughtsTokenCount": REASONING_TOKENS,
        "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
    }


def _names(body: Mapping[str, Any]) -> list[str]:
    tools = [tool.get("functionDeclarations") or () for tool in body.get("tools") or ()]
    return [declared.get("name", "") for tool in tools for declared in tool]


def _text(response: Any) -> str:
    if not isinstance(response, dict):
        return str(response or "")
    return str(response.get("output") or response.get("error") or response)
