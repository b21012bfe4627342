"""isthmus convert: a job of an older kind as a TrainJob of Kubeflow Trainer v2."""

import sys
from pathlib import Path
from typing import Annotated

import yaml
from cyclopts import Parameter

from isthmus.specs.errors import InvalidSpec, Refused


def convert(file: Path, *, to: str, output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None) -> int:
    """Convert a plain manifest of a PyTorchJob, TFJob or MPIJob; what has no counterpart is listed, and the exit code is 3.

    Parameters
    ----------
    file
        The manifest, as `isthmus run` takes it.
    to
        TrainJob.
    output
        Where to write the TrainingRuntime and the TrainJob; default: print them.
    """
    from workloads import convert as converting
    from workloads import load

    if to != "TrainJob":
        raise InvalidSpec(f"jobs are converted to TrainJob, not to {to}", subject="--to", remedy="--to TrainJob")
    kind = _kind(file)
    if kind in converting.RETIRED:
        raise Refused(f"a TrainJob has no counterpart for:\n  {converting.RETIRED[kind]}", subject=str(file))
    spec = load.load(file)
    if spec.manifest is None:
        raise InvalidSpec(
            f"{file} is a workload file, not a manifest of a job", subject=str(file), remedy="give a plain manifest"
        )
    converted = converting.to_train_job(spec.manifest)
    if converted.missing:
        listed = "\n  ".join(converted.missing)
        raise Refused(
            f"a TrainJob has no counterpart for:\n  {listed}",
            subject=str(file),
            remedy="leave it as it is, or change these",
        )
    text = yaml.safe_dump_all(converted.objects, sort_keys=False)
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
    return 0


def _kind(file: Path) -> str:
    """The kind in a file, before anything else of it is looked at; "" if it cannot be read, which `load` then tells."""
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    return str(document.get("kind", "")) if isinstance(document, dict) else ""
