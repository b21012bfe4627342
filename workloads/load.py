"""Reads a workload file, or a user's own manifest of a job, and says where in it a mistake is.

A file is read once, here; past this point a workload is a WorkloadSpec and never a dict.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from isthmus.specs.errors import InvalidSpec
from isthmus.specs.workload import WorkloadSpec
from workloads import manifest, trainjob

FILE = "workload.yaml"
SAMPLES = Path(__file__).parent / "samples"


def samples() -> list[str]:
    """Names of the samples, sorted."""
    return sorted(path.parent.name for path in SAMPLES.glob(f"*/{FILE}"))


def load(name: str | Path, changes: Mapping[str, str] | None = None) -> WorkloadSpec:
    """A workload by the name of a sample, or from a file.

    Args:
        name: a sample's name, the path of a file, or of a folder that holds a workload.yaml.
        changes: dotted field to new value, as text: {"roles.Worker.replicas": "1", "env.EPOCHS": "5"}.

    Raises:
        InvalidSpec: no such sample or file (the nearest names are given), not valid YAML, or a wrong field; file and line
            are named.
    """
    path = _find(str(name))
    shown = str(name) if path == Path(name) else f"workloads/samples/{name}/{FILE}"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(f"cannot read {shown}: {error}", subject=shown) from error
    return parse(text, origin=shown, changes=changes)


def parse(text: str, *, origin: str, changes: Mapping[str, str] | None = None) -> WorkloadSpec:
    """A workload from the text of a file.

    Args:
        origin: the file's name as the user knows it, for errors.
        changes: as in `load`.

    Raises:
        InvalidSpec: as in `load`.
    """
    try:
        trees = yaml.compose_all(text, Loader=yaml.SafeLoader)
        found = [pair for pair in zip(yaml.safe_load_all(text), trees, strict=True) if pair[0] is not None]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise InvalidSpec(f"{origin}, line {line}: {error.problem}", subject=origin, remedy=f"edit {origin}") from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise InvalidSpec(f"{origin}: {error}", subject=origin, remedy=f"edit {origin}") from error
    document, tree, runtime = _job(found, origin)
    for _, one in found:
        _refuse_twice(one, origin)
    for key, value in (changes or {}).items():
        _set(document, key, value)
    values = document
    if manifest.is_manifest(document):
        wrong = manifest.problems(document, runtime)
        if wrong:
            said = "; ".join(f"{origin}, line {_line(tree, at)}: {words}" for at, words in wrong)
            raise InvalidSpec(said, subject=origin, remedy=f"edit {origin}")
        values = manifest.as_values(document, runtime)
    elif given := {"manifest", "runtime"} & document.keys():
        raise InvalidSpec(
            f"{origin}: there is no field {min(given)!r}; give the manifest itself to isthmus run",
            subject=origin,
            remedy=f"edit {origin}",
        )
    try:
        return WorkloadSpec.model_validate(values)
    except ValidationError as error:
        own = values is document
        problems = "; ".join(
            _problem({**item, "loc": item["loc"] if own else manifest.place(document, item["loc"])}, tree, origin)
            for item in error.errors()
        )
        raise InvalidSpec(problems, subject=origin, remedy=f"edit {origin}") from error


def _job(found: list[tuple[Any, Any]], origin: str) -> tuple[dict[str, Any], Any, dict[str, Any] | None]:
    """The document of a file that is a job, its tree, and the TrainingRuntime that a TrainJob may bring with it."""
    if not found or not all(isinstance(document, dict) for document, _ in found):
        raise InvalidSpec(
            f"{origin}, line 1: a workload is a mapping of fields", subject=origin, remedy=f"edit {origin}"
        )
    runtimes = [document for document, _ in found if document.get("kind") == trainjob.RUNTIME]
    jobs = [pair for pair in found if pair[0].get("kind") != trainjob.RUNTIME]
    if len(jobs) != 1 or len(runtimes) > 1 or runtimes and jobs[0][0].get("kind") != trainjob.KIND:
        raise InvalidSpec(
            f"{origin} has {len(found)} documents: a file holds one job, and a TrainJob may bring its TrainingRuntime",
            subject=origin,
            remedy=f"edit {origin}",
        )
    return *jobs[0], runtimes[0] if runtimes else None


def _find(name: str) -> Path:
    path = Path(name)
    if path.is_dir() and (path / FILE).is_file():
        return path / FILE
    if path.is_file():
        return path
    if "/" in name or name.endswith((".yaml", ".yml")):
        raise InvalidSpec(f"there is no file {name}", subject=name, remedy="give a sample's name or an existing file")
    known = samples()
    if name in known:
        return SAMPLES / name / FILE
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known) or 'none'}"
    raise InvalidSpec(
        f"there is no workload {name!r}; {hint}", subject=name, remedy="isthmus run NAME-OR-FILE -s STACK"
    )


def _refuse_twice(node: Any, origin: str) -> None:
    """A key given twice: YAML forbids it, PyYAML takes the last one silently."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                raise InvalidSpec(
                    f"{origin}, line {line}: {key.value} is given twice", subject=origin, remedy=f"edit {origin}"
                )
            seen.add(key.value)
            _refuse_twice(value, origin)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_twice(item, origin)


def _set(document: dict[str, Any], key: str, value: str) -> None:
    *parents, last = key.split(".")
    place: Any = document
    for part in parents:
        if not isinstance(place.setdefault(part, {}), dict):
            raise InvalidSpec(f"--set {key}: {part} has no fields", subject=key)
        place = place[part]
    try:
        # Environment values are text in Kubernetes too: 5 stays "5".
        place[last] = value if parents[:1] == ["env"] else yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise InvalidSpec(f"--set {key}: {value!r} is not a YAML value", subject=key) from error


def _problem(item: Any, tree: Any, origin: str) -> str:
    loc: Sequence[Any] = item["loc"]
    where = ".".join(str(part) for part in loc)
    line = _line(tree, loc)
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(loc[-1]), _fields(), n=1)
        text = f"there is no field {where!r}" + (f" (did you mean {near[0]}?)" if near else "")
    elif item["type"] == "missing":
        text = f"{where} is missing"
    else:
        said = str(item["msg"]).removeprefix("Value error, ")
        text = f"{where}: {said}" if where else said
    return f"{origin}, line {line}: {text}"


def _fields() -> list[str]:
    from isthmus.specs import sharing, workload

    models = (
        workload.WorkloadSpec,
        workload.Role,
        sharing.WorkloadClaim,
        workload.Volume,
        workload.CostAssumptions,
    )
    return sorted({field.alias or name for model in models for name, field in model.model_fields.items()})


def _line(tree: Any, loc: Sequence[Any]) -> int:
    """Line of the deepest part of `loc` that the file has."""
    node = tree
    line: int = tree.start_mark.line + 1
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if found is None:
                return line
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return line
    return line
