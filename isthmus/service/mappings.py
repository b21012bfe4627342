"""A mapping: an algorithm's name in the API, mapped to a job. Users give parameters only; the mapping says the rest. Pure.

A mapping holds a workload as in a workload file, without apiVersion and name, in which a text may carry `{parameter}`. A
text that is nothing but one placeholder takes the parameter's own type, so that `replicas: "{workers}"` is a number; in
`command` and `env` everything becomes text. `{{` and `}}` stand for braces. No shell ever sees a command, so a parameter
cannot add one.
"""

import math
import re
from collections.abc import Iterator
from collections.abc import Mapping as Items
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError

from isthmus.specs.errors import InvalidSpec
from isthmus.specs.names import nearest
from isthmus.specs.workload import WorkloadSpec
from workloads import render

NAME = r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"
"""An algorithm's name is its jobs' name: a DNS-1035 label, as WorkloadSpec.name has it (case A17)."""

PARAMETER_NAME = r"^[a-z][a-z0-9_]{0,39}$"

LARGEST_INTEGER = 2**53
"""Integers beyond this are not the same number in every JSON reader (RFC 8259, 6)."""

LONGEST_TEXT = 4096
MOST_PARAMETERS = 100

Value = StrictBool | StrictInt | StrictFloat | StrictStr

_TOKEN = re.compile(r"\{\{|\}\}|\{([a-z][a-z0-9_]{0,39})\}")
_WHOLE = re.compile(r"\{([a-z][a-z0-9_]{0,39})\}")
_TEXT_FIELDS = ("command", "env")


class Parameter(BaseModel):
    """One thing that a user may say about a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["integer", "number", "text", "boolean", "choice"]
    default: Value | None = None
    """None: it must be given."""
    minimum: StrictInt | StrictFloat | None = None
    maximum: StrictInt | StrictFloat | None = None
    choices: tuple[Annotated[str, Field(max_length=200)], ...] = Field(default=(), max_length=200)
    longest: int = Field(default=200, ge=1, le=LONGEST_TEXT)
    """Characters of a text at most."""
    description: str = Field(default="", max_length=500)

    def check(self, name: str, value: object) -> Value:
        """A value as this parameter takes it: an integer is a number, too; nothing else is turned into something else.

        Raises:
            InvalidSpec: naming the parameter and what it takes.
        """
        problem = self._problem(value)
        if problem:
            raise InvalidSpec(
                f"parameter {name} {problem}", subject=f"parameter {name}", remedy=f"{name} takes {self.takes}"
            )
        if self.type == "number" and isinstance(value, int):
            return float(value)
        return value  # type: ignore[return-value]  # _problem has seen to its type

    @property
    def takes(self) -> str:
        """What it takes, in words."""
        if self.type == "choice":
            return "one of " + ", ".join(self.choices)
        if self.type == "boolean":
            return "true or false"
        if self.type == "text":
            return f"a text of at most {self.longest} characters"
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (("at least", self.minimum), ("at most", self.maximum))
            if bound is not None
        ]
        return " ".join(["an integer" if self.type == "integer" else "a number", " and ".join(bounds)]).strip()

    def _problem(self, value: object) -> str:
        if self.type in ("text", "choice"):
            if not isinstance(value, str):
                return f"must be a text, not {_shown(value)}"
            if self.type == "choice":
                return "" if value in self.choices else f"must be one of {', '.join(self.choices)}, not {_shown(value)}"
            if len(value) > self.longest:
                return f"has {len(value)} characters, more than {self.longest}"
            return "" if value.isprintable() else "holds characters that cannot be printed"
        if self.type == "boolean":
            return "" if isinstance(value, bool) else f"must be true or false, not {_shown(value)}"
        if isinstance(value, bool) or not isinstance(value, int if self.type == "integer" else int | float):
            return f"must be {'an integer' if self.type == 'integer' else 'a number'}, not {_shown(value)}"
        if not math.isfinite(value) or (isinstance(value, int) and abs(value) > LARGEST_INTEGER):
            return f"must be a finite number of at most {LARGEST_INTEGER}"
        if self.minimum is not None and value < self.minimum:
            return f"is {value}, less than {self.minimum:g}"
        if self.maximum is not None and value > self.maximum:
            return f"is {value}, more than {self.maximum:g}"
        return ""


class AlgorithmMapping(BaseModel):
    """An algorithm as its maintainer writes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parameters: dict[Annotated[str, Field(pattern=PARAMETER_NAME)], Parameter] = Field(
        default={}, max_length=MOST_PARAMETERS
    )
    workload: dict[str, Any]
    """A workload file's fields but apiVersion and name (isthmus/specs/workload.py)."""


def check(name: str, mapping: AlgorithmMapping) -> None:
    """Refuse a mapping that could not be run: tried with its defaults, and with every bound at its least and its most.

    Raises:
        InvalidSpec: naming the field or parameter.
    """
    for key, parameter in mapping.parameters.items():
        _check_parameter(key, parameter)
    used = set(_placeholders(mapping.workload))
    for key in sorted(used - mapping.parameters.keys()):
        near = nearest(key, mapping.parameters)
        raise InvalidSpec(
            f"the workload names {{{key}}}, which is no parameter" + (f"; nearest: {near[0]}" if near else ""),
            subject=f"algorithm {name}",
            remedy=f"declare {key} under parameters, or write {{{{{key}}}}} for the text itself",
        )
    for key in sorted(mapping.parameters.keys() - used):
        raise InvalidSpec(
            f"parameter {key} is used nowhere in the workload",
            subject=f"algorithm {name}",
            remedy=f"write {{{key}}} where it belongs, for example in env",
        )
    for given in _trials(mapping):
        fill(name, mapping, given)


def fill(name: str, mapping: AlgorithmMapping, given: Items[str, object]) -> tuple[dict[str, Value], WorkloadSpec]:
    """The workload of one run, and every parameter with the value it has there.

    Raises:
        InvalidSpec: an unknown parameter (the nearest is named), one that is missing or out of bounds, or a workload that
            is not valid with these values.
    """
    values: dict[str, Value] = {}
    for key in given:
        if key not in mapping.parameters:
            near = nearest(key, mapping.parameters)
            hint = f"; nearest: {', '.join(near)}" if near else f"; it has: {', '.join(mapping.parameters) or 'none'}"
            raise InvalidSpec(
                f"algorithm {name} has no parameter {_shown(key)}{hint}",
                subject=f"algorithm {name}",
                remedy=f"use {near[0]}" if near else "leave it out",
            )
    for key, parameter in mapping.parameters.items():
        if key in given:
            values[key] = parameter.check(key, given[key])
        elif parameter.default is not None:
            values[key] = parameter.check(key, parameter.default)
        else:
            raise InvalidSpec(
                f"parameter {key} must be given", subject=f"algorithm {name}", remedy=f"{key} takes {parameter.takes}"
            )
    document = {key: _filled(part, values, text=key in _TEXT_FIELDS) for key, part in mapping.workload.items()}
    for key in ("apiVersion", "name"):
        if key in document:
            raise InvalidSpec(
                f"{key} of the workload is set by the service", subject=f"algorithm {name}", remedy=f"leave {key} out"
            )
    try:
        spec = WorkloadSpec.model_validate({"apiVersion": "isthmus.dev/v1", "name": name, **document})
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'workload'}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors()
        )
        raise InvalidSpec(problems, subject=f"algorithm {name}", remedy="change the mapping's workload") from error
    render.check(spec)
    return values, spec


def _check_parameter(name: str, parameter: Parameter) -> None:
    remedy = f"change parameter {name}"
    if (parameter.type == "choice") != bool(parameter.choices):
        raise InvalidSpec(f"parameter {name}: choices belong to type choice, and it needs some", remedy=remedy)
    low, high = parameter.minimum, parameter.maximum
    if (low is not None or high is not None) and parameter.type not in ("integer", "number"):
        raise InvalidSpec(f"parameter {name}: only integers and numbers have bounds", remedy=remedy)
    for bound in (low, high):
        if bound is not None and not (math.isfinite(bound) and abs(bound) <= LARGEST_INTEGER):
            raise InvalidSpec(f"parameter {name}: a bound must be finite and at most {LARGEST_INTEGER}", remedy=remedy)
    if low is not None and high is not None and low > high:
        raise InvalidSpec(f"parameter {name}: minimum {low:g} is more than maximum {high:g}", remedy=remedy)
    if parameter.default is not None:
        parameter.check(name, parameter.default)


def _trials(mapping: AlgorithmMapping) -> Iterator[dict[str, Value]]:
    """Values to try a mapping with: each parameter's plainest one, then all at their least and all at their most."""
    plain = {key: _plain(parameter) for key, parameter in mapping.parameters.items()}
    yield plain
    for end in ("minimum", "maximum"):
        ends: dict[str, Value] = {}
        for key, parameter in mapping.parameters.items():
            bound = getattr(parameter, end)
            if bound is not None:
                ends[key] = math.ceil(bound) if parameter.type == "integer" and end == "minimum" else bound
                if parameter.type == "integer" and end == "maximum":
                    ends[key] = math.floor(bound)
        if ends:
            yield plain | ends


def _plain(parameter: Parameter) -> Value:
    if parameter.default is not None:
        return parameter.default
    if parameter.type == "choice":
        return parameter.choices[0]
    if parameter.type in ("text", "boolean"):
        return "x" if parameter.type == "text" else True
    low = parameter.minimum if parameter.minimum is not None else min(1, parameter.maximum or 1)
    return math.ceil(low) if parameter.type == "integer" else float(low)


def _placeholders(part: object) -> Iterator[str]:
    if isinstance(part, str):
        yield from (found[1] for found in _TOKEN.finditer(part) if found[1])
    elif isinstance(part, dict):
        for value in part.values():
            yield from _placeholders(value)
    elif isinstance(part, list):
        for value in part:
            yield from _placeholders(value)


def _filled(part: Any, values: Items[str, Value], *, text: bool) -> Any:
    if isinstance(part, dict):
        return {key: _filled(value, values, text=text) for key, value in part.items()}
    if isinstance(part, list):
        return [_filled(value, values, text=text) for value in part]
    if not isinstance(part, str):
        return part
    whole = _WHOLE.fullmatch(part)
    if whole and not text:
        return values[whole[1]]
    return _TOKEN.sub(lambda found: _as_text(values[found[1]]) if found[1] else found[0][0], part)


def _as_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value!r}" if isinstance(value, float) else str(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
