"""What a cloud's SDK says about its own resource types: property names and required inputs, by reflection."""

import importlib
import inspect
import sys
import typing
from functools import cache
from types import ModuleType
from typing import Any

import pulumi
from pulumi import _types
from pydantic import ValidationError

from isthmus.localcluster.kind.resources import TYPES

PROVIDER = "pulumi:providers:"


@cache
def args_class(token: str) -> type:
    """The input class of a resource type, found by the type token that the SDK registers for it."""
    if token.startswith(PROVIDER):
        package = importlib.import_module(f"pulumi_{token.removeprefix(PROVIDER)}")
        return typing.cast(type, package.ProviderArgs)
    package_name, module_path, _ = token.split(":")
    # By attribute, as the program does it: the SDKs load their packages when something is first asked of them.
    package = getattr(importlib.import_module(f"pulumi_{package_name}"), module_path.split("/")[0])
    for _, member in inspect.getmembers(package, inspect.isclass):
        if getattr(member, "pulumi_type", None) == token and issubclass(member, pulumi.CustomResource):
            module: ModuleType = sys.modules[member.__module__]
            return typing.cast(type, getattr(module, module.__all__[0]))
    raise LookupError(f"the SDK has no resource type {token}")


def problems(token: str, inputs: dict[str, Any]) -> list[str]:
    """Every input that the SDK does not know and every required one that is missing, nested ones too."""
    if token.startswith("isthmus:") or token == f"{PROVIDER}isthmus":
        return _own_problems(token, inputs)
    return _problems(args_class(token), inputs, token)


def _own_problems(token: str, inputs: dict[str, Any]) -> list[str]:
    """The same for our own provider, whose types check their inputs themselves."""
    if token.startswith(PROVIDER):
        return []
    try:
        TYPES[token].inputs.model_validate({key: value for key, value in inputs.items() if value is not None})
    except ValidationError as error:
        return [f"{token}: {item['loc']} {item['msg']}" for item in error.errors()]
    return []


def _problems(expected: type, value: dict[str, Any], where: str) -> list[str]:
    known = _types.input_type_types(expected)
    found = [f"{where}: the SDK has no property {name!r}" for name in value if name not in known]
    names = _types.input_type_py_to_pulumi_names(expected)
    for parameter in list(inspect.signature(expected.__init__).parameters.values())[1:]:  # type: ignore[misc]
        name = names.get(parameter.name, parameter.name)
        if parameter.default is inspect.Parameter.empty and name not in value:
            found.append(f"{where}: {name} is required")
    for name, item in value.items():
        nested = _nested(known.get(name))
        items = item if isinstance(item, list) else [item]
        if nested is not None:
            for each in items:
                if isinstance(each, dict):
                    found += _problems(nested, each, f"{where}.{name}")
    return found


def _nested(hint: Any) -> type | None:
    """The input class inside Input[X], Optional[...], Sequence[...]; None for plain values and free maps."""
    if inspect.isclass(hint) and _types.is_input_type(hint):
        return hint
    if typing.get_origin(hint) is dict or "Mapping" in str(typing.get_origin(hint)):
        return None
    for part in typing.get_args(hint):
        found = _nested(part)
        if found is not None:
            return found
    return None
