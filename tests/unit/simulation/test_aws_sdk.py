"""Every declared AWS type and function against the SDK's own classes: names, kinds and which inputs are required."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import pulumi_aws
import pytest

from isthmus.simulation.aws.cloud import CLOUD
from isthmus.simulation.resource import Property, ResourceType

types = pytest.mark.parametrize("kind", CLOUD.types.values(), ids=list(CLOUD.types))


@types
def test_properties_are_the_sdk_s(kind: ResourceType) -> None:
    arguments, resource = _classes(kind.token)
    given, outputs = _names(arguments), _names(resource)
    assert {item.name for item in kind.inputs} - given == set()
    assert {item.name for item in kind.outputs} - outputs == set()
    assert {item.name for item in kind.outputs} & given == set(), "the program may set these"


@types
def test_required_inputs_are_the_sdk_s(kind: ResourceType) -> None:
    arguments, _ = _classes(kind.token)
    parameters = inspect.signature(arguments.__init__).parameters.values()
    names = _python_names(arguments)
    required = {
        names[item.name] for item in parameters if item.default is inspect.Parameter.empty and item.name in names
    }
    assert {item.name for item in kind.inputs if item.required} == required


@types
def test_kinds_are_the_sdk_s(kind: ResourceType) -> None:
    arguments, _ = _classes(kind.token)
    _check_kinds(arguments, kind.inputs, kind.token)


def test_functions_are_the_sdk_s() -> None:
    for token, function in CLOUD.functions.items():
        package, name = re.fullmatch(r"aws:(\w+)/\w+:(\w+)", token).groups()  # type: ignore[union-attr]
        module = _package(package)
        parameters = inspect.signature(getattr(module, _snake(name))).parameters
        assert {_snake(item.name) for item in function.arguments} <= set(parameters), token


def _check_kinds(arguments: Any, declared: tuple[Property, ...], where: str) -> None:
    names = {js: python for python, js in _python_names(arguments).items()}
    for item in declared:
        annotation = str(inspect.signature(arguments.__init__).parameters[names[item.name]].annotation)
        assert item.kind == _kind(annotation), f"{where}.{item.name}: {annotation}"
        if item.fields:
            nested = re.search(r"'(\w+Args)'", annotation)
            assert nested, annotation
            inner = getattr(sys.modules[arguments.__module__.rpartition(".")[0] + "._inputs"], nested.group(1))
            _check_kinds(inner, item.fields, f"{where}.{item.name}")


def _kind(annotation: str) -> str:
    text = re.sub(r"pulumi\.Input|typing\.|collections\.abc\.|_?builtins\.", "", annotation)
    listed, mapped = "Sequence[" in text, "Mapping[" in text
    if "PolicyDocumentArgs" in text:
        return "string"  # a document may also be given as a string of JSON: the form that is understood here
    if re.search(r"'\w+Args'", text):
        return "objects" if listed else "object"
    if listed or mapped:
        return "list" if listed else "map"
    for name, kind in (("bool", "bool"), ("int", "int"), ("float", "number")):
        if re.search(rf"\b{name}\b", text):
            return kind
    return "string"


def _classes(token: str) -> tuple[Any, Any]:
    package, _, name = re.fullmatch(r"aws:(\w+)/(\w+):(\w+)", token).groups()  # type: ignore[union-attr]
    resource = getattr(_package(package), name)
    module = sys.modules[resource.__module__]
    arguments = getattr(module, f"{name}InitArgs", None) or getattr(module, f"{name}Args")
    return arguments, resource


def _package(name: str) -> Any:
    """A package of the SDK, loaded as the program loads it. The SDK loads its packages when something of them is first asked
    for; importing a module inside one before that leaves the package half empty for every later test."""
    return pulumi_aws if name == "index" else getattr(pulumi_aws, name)


def _names(owner: Any) -> set[str]:
    return set(_python_names(owner).values())


def _python_names(owner: Any) -> dict[str, str]:
    """Python name to the name on the wire, of a class of the SDK."""
    found = {}
    for name, item in inspect.getmembers(owner, lambda value: isinstance(value, property)):
        found[name] = getattr(item.fget, "_pulumi_name", name)
    return found


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
