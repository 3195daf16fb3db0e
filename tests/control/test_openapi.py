"""The document that describes the API: it says all of each route, and every answer is as it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import httpx2
import pytest
from jsonschema_rs import Draft202012Validator

from postroom.control.api import OPERATIONS, build_api
from postroom.control.ops.table import REST
from postroom.errors import PROBLEM_TYPE
from postroom.protocol.principal import Scope
from tests.control.conforming import contract
from tests.control.serving import serving

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
WITHOUT_API = ("/livez", "/readyz")
EVERY_ERROR = {"400", "403", "431"}


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return contract().document


def operations(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def contents(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from operation.get("requestBody", {}).get("content", {}).values()
    for answer in operation["responses"].values():
        yield from answer.get("content", {}).values()


@pytest.mark.requirement("api-as-described")
def test_every_route_has_a_summary_a_description_a_scope_and_described_parameters(
    described: dict[str, Any],
):
    scopes = {*Scope, None}
    for name, operation in operations(described):
        assert 5 < len(operation["summary"]) < 80, name
        assert operation["description"], name
        assert operation["x-postroom-scope"] in scopes, name
        scope = operation["x-postroom-scope"]
        # Without a scope it is for everybody, or for every key.
        expected = ([{"key": [scope]}],) if scope else ([], [{"key": []}])
        assert operation["security"] in expected, name
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), f"{name}: {parameter['name']}"


@pytest.mark.requirement("api-as-described")
def test_every_route_says_which_errors_it_answers_with_their_types(described: dict[str, Any]):
    known = described["components"]["examples"]
    for name, operation in operations(described):
        refusals = {
            status: answer for status, answer in operation["responses"].items() if status >= "400"
        }
        expected = EVERY_ERROR | ({"401"} if operation["x-postroom-scope"] else set())
        if "requestBody" in operation:
            expected |= {"413", "422"}
        assert refusals.keys() >= expected, name
        for status, answer in refusals.items():
            content = answer["content"].get(PROBLEM_TYPE, {})
            for code in content.get("examples", ()):
                assert known[code]["value"]["status"] == int(status), f"{name}: {code}"


@pytest.mark.requirement("api-as-described")
def test_every_body_and_answer_has_an_example_that_has_its_form(described: dict[str, Any]):
    components = {"components": {"schemas": described["components"]["schemas"]}}
    for name, operation in operations(described):
        assert any(status < "400" for status in operation["responses"]), name
        for content in contents(operation):
            assert "schema" in content, name
            if isinstance(content.get("example"), dict) and "card" not in name:
                assert "$ref" in content["schema"] or "/openapi.json" in name, (
                    f"{name} has no shape"
                )
            if "examples" in content:  # of problems
                values = [
                    described["components"]["examples"][code]["value"]
                    for code in content["examples"]
                ]
            else:
                values = [content["example"]]
            validator = Draft202012Validator({**content["schema"], **components})
            for value in values:
                errors = [
                    f"{error.instance_path}: {error.message}"
                    for error in validator.iter_errors(value)
                ]
                assert not errors, f"{name}: {errors}"


def test_the_document_is_json_and_each_of_its_references_leads_somewhere(described: dict[str, Any]):
    text = json.dumps(described)
    for part in text.split('"$ref": "#/')[1:]:
        found: Any = described
        for key in part.partition('"')[0].split("/"):
            found = found[key]
    assert len({operation["operationId"] for _, operation in operations(described)}) == sum(
        1 for _ in operations(described)
    )


def defaults(schema: Any, where: str) -> Iterator[str]:
    """The places of `default` as a keyword; a field may have that name."""
    if isinstance(schema, list):
        for each in schema:
            yield from defaults(each, where)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "default":
                yield where
            elif key == "properties":
                for name, field in value.items():
                    yield from defaults(field, f"{where}.{name}")
            elif key not in ("example", "examples"):
                yield from defaults(value, where)


@pytest.mark.requirement("api-as-described")
def test_no_body_of_a_request_says_a_default_which_generators_take_for_a_field_that_is_given(
    described: dict[str, Any],
):
    found = [
        place
        for name, operation in operations(described)
        for place in defaults(operation.get("requestBody", {}), name)
    ]
    for name, schema in described["components"]["schemas"].items():
        found += defaults(schema, name)
    assert found == []
    message = described["components"]["schemas"]["MessageBody"]
    assert {"parts", "subject", "thread", "key"} <= set(message["properties"]) - set(
        message.get("required", ())
    )
    assert message["properties"]["expects_reply"]["description"] == "Without it: true."


@pytest.mark.anyio
@pytest.mark.requirement("api-as-described")
@pytest.mark.parametrize("prefix", ["", "/orgs/acme"])
async def test_a_method_that_a_path_has_not_is_answered_with_all_that_it_has(prefix: str):
    app = build_api(MagicMock(), MagicMock(), MagicMock())
    found = contract()
    async with serving(app) as site:
        site.router.open(app, "acme")
        base = f"http://{site.host}"
        async with httpx2.AsyncClient(base_url=base) as client:
            for path in found.document["paths"]:
                asked = re.sub(r"{\w+}", "x1", path)
                if prefix and asked in WITHOUT_API:
                    continue
                known = {method for method in METHODS if found.operation(method, asked)}
                known |= {"HEAD"} if asked in WITHOUT_API else set()
                for method in set(METHODS) - known:
                    answer = await client.request(method, prefix + asked)
                    about = f"{method} {prefix}{asked}"
                    assert answer.status_code == 405, about
                    assert answer.headers["allow"].split(", ") == sorted(known), about
                    assert answer.headers["content-type"] == PROBLEM_TYPE, about


@pytest.mark.anyio
@pytest.mark.requirement("api-as-described")
@pytest.mark.parametrize("path", WITHOUT_API)
async def test_head_is_answered_as_get_without_a_body(path: str):
    async with (
        serving(MagicMock()) as site,
        httpx2.AsyncClient(base_url=f"http://{site.host}") as client,
    ):
        answers = [await client.request(method, path) for method in ("GET", "HEAD")]
    assert [a.status_code for a in answers] == [200, 200]
    assert answers[0].headers == answers[1].headers
    assert answers[1].content == b""


def test_each_operation_has_a_name_and_an_address_of_its_own():
    names = [each.name for each in OPERATIONS if each.segments[-1] != REST]
    addresses = [(each.method, re.sub(r"{\w+}", "{}", each.path)) for each in OPERATIONS]

    assert len(set(names)) == len(names)
    assert len(set(addresses)) == len(addresses)
    # The router looks operations up by the third segment, too.
    assert [each.path for each in OPERATIONS if "{" in "".join(each.segments[:3])] == [
        each.path for each in OPERATIONS if each.segments[-1] == REST
    ]
