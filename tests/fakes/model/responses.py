"""OpenAI's responses API: `POST /v1/responses` as a stream."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
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

_number = itertools.count(1)


def takes(path: str) -> bool:
    """See `Dialect`."""
    return path.endswith("/responses")


def read(body: Mapping[str, Any]) -> Conversation:
    """See `Dialect`."""
    said = body.get("input", [])
    items = (
        [{"type": "message", "role": "user", "content": said}] if isinstance(said, str) else said
    )
    user, results = "", []
    for item in items:
        kind = item.get("type", "message")
        if kind in ("function_call_output", "custom_tool_call_output"):
            results.append(_text(item.get("output")))
        elif kind == "message" and item.get("role") == "user":
            user, results = _text(item.get("content")), []
    return Conversation(user, tuple(results), tuple(_names(body)))


def stream(step: Step, path: str, body: Mapping[str, Any]) -> Iterator[bytes]:
    """See `Dialect`."""
    response = {
        "id": f"resp_{next(_number)}",
        "object": "response",
        "model": body.get("model", "fake"),
    }
    yield _event("response.created", response=response | {"status": "in_progress", "output": []})
    items = _items(step, body)
    for index, item in enumerate(items):
        yield _event("response.output_item.added", output_index=index, item=_begun(item))
        if item["type"] == "message":
            for word in words(item["content"][0]["text"]):
                yield _event(
                    "response.output_text.delta",
                    item_id=item["id"],
                    output_index=index,
                    content_index=0,
                    delta=word,
                )
        yield _event("response.output_item.done", output_index=index, item=item)
    done = response | {"status": "completed", "output": items, "usage": _usage()}
    yield _event("response.completed", response=done)


def whole(step: Step, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """See `Dialect`."""
    if body.get("stream"):
        return None
    return {
        "id": f"resp_{next(_number)}",
        "object": "response",
        "status": "completed",
        "model": body.get("model", "fake"),
        "output": _items(step, body),
        "usage": _usage(),
    }


def failure(status: int) -> dict[str, Any]:
    """See `Dialect`."""
    return {"error": {"message": "scripted failure", "type": "scripted", "code": str(status)}}


def _items(step: Step, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    thought = [_reasoning(step.thought)] if step.thought else []
    match step.deed:
        case Say(text):
            return [*thought, _message(text)]
        case Run(command):
            deed = _shell(command, body)
        case Runs(commands):
            return [*thought, *(_shell(command, body) for command in commands)]
        case Call(tool, arguments):
            deed = _called(tool, arguments, body)
        case Edit(file, text):
            deed = _edit(file, text, body)
        case Ask(question, options):
            deed = _ask(question, options, body)
        case Fail():
            raise ValueError("a failure has no answer")
    return [*thought, _message("Using a tool."), deed]


def _shell(command: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """A call of the shell tool that the agent offers; their names changed from version to version."""
    if "exec" in _names(body):
        # A program in JavaScript that calls the tools.
        script = f"text(JSON.stringify(await tools.exec_command({json.dumps({'cmd': command})})));"
        return _custom("exec", script)
    arguments = {
        "exec_command": {"cmd": command},
        "shell_command": {"command": command},
        "shell": {"command": ["bash", "-c", command]},
    }
    name = next((name for name in arguments if name in _names(body)), "shell")
    return _call(name, arguments[name])


def _called(tool: str, arguments: str, body: Mapping[str, Any]) -> dict[str, Any]:
    call = _call(offered(tool, _names(body)), json.loads(arguments))
    spaces = (outer for outer in body.get("tools") or () if outer.get("type") == "namespace")
    for space in spaces:
        if any(inner.get("name") == call["name"] for inner in space.get("tools") or ()):
            return call | {"namespace": space["name"]}
    return call


def _edit(file: str, text: str, body: Mapping[str, Any]) -> dict[str, Any]:
    lines = "".join(f"+{line}\n" for line in text.split("\n"))
    patch = f"*** Begin Patch\n*** Add File: {file}\n{lines}*** End Patch\n"
    for tool in body.get("tools") or ():
        if tool.get("name") == "apply_patch" and tool.get("type") == "custom":
            return _custom("apply_patch", patch)
    if "apply_patch" in _names(body):
        return _call("apply_patch", {"input": patch})
    return _shell(f"apply_patch <<'PATCH'\n{patch}PATCH", body)


def _ask(question: str, options: tuple[str, ...], body: Mapping[str, Any]) -> dict[str, Any]:
    if "request_user_input" not in _names(body):
        return _message(question)
    offered = [{"label": option, "description": option} for option in options or ("yes", "no")]
    asked = {"id": "scripted", "header": "Scripted", "question": question, "options": offered}
    return _call("request_user_input", {"questions": [asked]})


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{next(_number)}",
        "call_id": f"call_fake{next(_number)}",
        "name": name,
        "arguments": json.dumps(arguments),
        "status": "completed",
    }


def _custom(name: str, given: str) -> dict[str, Any]:
    return {
        "type": "custom_tool_call",
        "id": f"ctc_{next(_number)}",
        "call_id": f"call_fake{next(_number)}",
        "name": name,
        "input": given,
        "status": "completed",
    }


def _message(text: str) -> dict[str, Any]:
    return {
        "type": "message",
        "id": f"msg_{next(_number)}",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _reasoning(text: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "id": f"rs_{next(_number)}", "summary": summary}


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    empty = {"message": {"content": []}, "function_call": {"arguments": ""}}.get(item["type"], {})
    return item | empty | {"status": "in_progress"}


def _usage() -> dict[str, Any]:
    return {
        "input_tokens": INPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
        "output_tokens": OUTPUT_TOKENS,
        "output_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
    }


def _names(body: Mapping[str, Any]) -> list[str]:
    """Names of the tools; newer models of Codex get them as items, in name spaces."""
    tools = list(body.get("tools") or ())
    said = body.get("input")
    for item in said if isinstance(said, list) else ():
        if item.get("type") == "additional_tools":
            tools += item.get("tools") or ()
    inner = [tool for outer in tools for tool in outer.get("tools") or ()]
    return [tool.get("name", "") for tool in tools + inner]


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content or () if isinstance(block, dict))
