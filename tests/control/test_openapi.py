"""The document that describes the API: it says all of each route, and every answer is as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from postroom.errors import PROBLEM_TYPE
from postroom.protocol.principal import Scope
from tests.control.conforming import contract

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


@pytest.mark.requirement("api-described")
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


@pytest.mark.requirement("api-described")
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


@pytest.mark.requirement("api-described")
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
