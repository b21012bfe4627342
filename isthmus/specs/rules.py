"""What each kind of job allows, beyond what a field says by itself. Pure: sentences about one workload, none if it is fine.

The rules are those of the operators' own webhooks and controllers (sources: isthmus.specs.kinds), told before anything is
created; where an operator takes a setting and then does nothing with it, that is refused too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus.specs.workload import WorkloadSpec


LONGEST_TRAIN_JOB = 38
"""JobSet adds -node-0-9999-abcde to the run's name, and its webhook lets a pod's name have 63 characters."""


def problems(spec: WorkloadSpec) -> list[str]:
    """Every rule of its kind that a workload breaks, a clause each."""
    return [*_roles(spec), *_policies(spec), *_elastic(spec), *_success(spec), *_volumes(spec), *_claims(spec)]


def _roles(spec: WorkloadSpec) -> Iterator[str]:
    kind = spec.form
    for role in spec.roles:
        if role not in kind.roles:
            yield f"{kind.name} has no role {role!r}; known: {', '.join(kind.roles)}"
    if not any(role in spec.roles for role in _needed(spec)):
        yield f"roles: a {kind.name} needs {' or '.join(_needed(spec))}"
    for name in kind.alone:
        if name in spec.roles and spec.roles[name].replicas != 1:
            yield f"roles.{name}.replicas is {spec.roles[name].replicas}: a {kind.name} has exactly 1"
    if {"Chief", "Master"} <= spec.roles.keys():
        yield "roles: Chief and Master are two names of the same role; keep one"
    if kind.name == "MPIJob" and "Launcher" in spec.roles and spec.roles["Launcher"].on_cards:
        yield "roles.Launcher.gpus: the MPI operator hides the cards from the launcher; give them to the workers"
    if kind.name == "MPIJob" and "Worker" not in spec.roles:
        yield "roles: a MPIJob needs Worker, on which the launcher starts the program"


def _needed(spec: WorkloadSpec) -> tuple[str, ...]:
    """An elastic job's workers find each other without a master."""
    return ("Worker",) if spec.elastic else spec.form.needs


def _policies(spec: WorkloadSpec) -> Iterator[str]:
    kind = spec.form
    if spec.restart_policy not in kind.restart_policies:
        known = ", ".join(kind.restart_policies)
        yield f"restartPolicy {spec.restart_policy}: a {kind.name} knows {known}"
    if spec.clean_pod_policy is not None and not kind.clean_pod_policy:
        until = "" if kind.name == "TrainJob" else " (ttlSecondsAfterFinished)"
        yield f"cleanPodPolicy: a {kind.name} has none; its pods stay until it is deleted{until}"
    if spec.ttl_seconds is not None and kind.name == "TrainJob":
        yield "ttlSecondsAfterFinished: a TrainJob has none; it stays until it is deleted"
    if kind.name == "TrainJob" and len(spec.name) > LONGEST_TRAIN_JOB:
        yield f"name: at most {LONGEST_TRAIN_JOB} characters for a TrainJob, whose pods are named after it and its JobSet"


def _elastic(spec: WorkloadSpec) -> Iterator[str]:
    if spec.elastic is None:
        return
    if spec.kind != "PyTorchJob":
        yield f"elastic: a {spec.kind} cannot be; a PyTorchJob can"
        return
    least, most = spec.elastic.min_replicas, spec.elastic.max_replicas
    if least > most:
        yield f"elastic.minReplicas is {least}, more than maxReplicas {most}"
    elif "Worker" in spec.roles and not least <= spec.roles["Worker"].replicas <= most:
        yield f"roles.Worker.replicas is {spec.roles['Worker'].replicas}, not between elastic's {least} and {most}"


def _success(spec: WorkloadSpec) -> Iterator[str]:
    if spec.success_policy is None:
        return
    if spec.kind != "TFJob":
        yield f"successPolicy: a {spec.kind} has none; a TFJob has"
    elif "Chief" in spec.roles or "Master" in spec.roles:
        yield "successPolicy: with a Chief the job is done when the Chief is, whatever this says"


def _volumes(spec: WorkloadSpec) -> Iterator[str]:
    seen: set[str] = set()
    for volume in spec.volumes:
        if volume.role not in spec.roles:
            yield f"volume {volume.name} names role {volume.role!r}, which the workload does not have"
        if volume.name in seen:
            yield f"volume {volume.name} is given twice"
        seen.add(volume.name)


def _claims(spec: WorkloadSpec) -> Iterator[str]:
    names = [claim.name for claim in spec.claims]
    if len(set(names)) < len(names):
        yield f"claims: the names must differ: {', '.join(names)}"
    named = {claim for role in spec.roles.values() for claim in role.claims}
    for role, pods in spec.roles.items():
        if pods.gpus and pods.claims:
            yield f"role {role} asks for gpus and claims; a node gives its cards out in one of the two ways"
    for claim in sorted(named.symmetric_difference(names)):
        yield (
            f"no role names claim {claim!r}"
            if claim in names
            else (f"a role names claim {claim!r}; the workload has: {', '.join(names) or 'none'}")
        )
