"""schemathesis over every operation of the OpenAPI document, as an administrator: no 500, and answers as the document says.

A few examples for each operation here; test_openapi_long (marker slow) asks for many. Both go through the whole application
and a real database.
"""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import booleans
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
QUIET = [
    HealthCheck.function_scoped_fixture,
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.data_too_large,
]
PHASES = (Phase.explicit, Phase.generate)


def ask_everything(house: Any, examples: int) -> int:
    """Ask each operation so many times; returns how many answers there were."""
    run = house.submit()
    house.worker().submit_one()
    schema = schemathesis.openapi.from_asgi("/openapi.json", house.http.app)
    known = {"project": "vision", "algorithm": "digits", "run": run, "user": "viewer", "version": 1}
    headers = {"Authorization": f"Bearer {house.keys['admin']}"}
    count = 0
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(max_examples=examples, deadline=None, suppress_health_check=QUIET, phases=PHASES, database=None)
        @given(case=operation.as_strategy(), real=booleans())
        def ask(case: Any, real: bool) -> None:
            nonlocal count
            if real:  # half of them reach what is there
                case.path_parameters = {**(case.path_parameters or {}), **{
                    name: value for name, value in known.items() if name in (case.path_parameters or {})
                }}  # fmt: skip
            case.call_and_validate(headers=headers, checks=CHECKS)
            count += 1

        if operation.definition.raw["operationId"] not in ("disableUser", "revokeKey"):  # they would lock us out
            ask()
    return count


def test_openapi(house: Any) -> None:
    assert ask_everything(house, 4) > 100


@pytest.mark.slow
def test_openapi_long(house: Any) -> None:
    assert ask_everything(house, 100) > 3000
