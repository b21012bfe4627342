"""The Pulumi engine, told better: one stack through the Automation API, with progress, a plan and errors that name the
resource first. `pulumi up -s STACK` does the same work; this module adds nothing to what is deployed.
"""

import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.cli import project
from isthmus.cli.output import Progress
from isthmus.specs.errors import IsthmusError, NotFound, Refused
from isthmus.toolchain import home, scratch

if TYPE_CHECKING:
    from pulumi.automation import Stack
    from pulumi.automation.events import EngineEvent, StepEventMetadata

    from isthmus.costs.plan import Step

CLUSTER_TYPES = frozenset({"aws:eks/cluster:Cluster", "gcp:container/cluster:Cluster", "isthmus:kind:Cluster"})
"""Replacing one of these loses every workload and queue in it, so it is refused unless confirmed (case A05)."""

_PAST = {"create": "created", "update": "updated", "delete": "deleted", "replace": "replaced"}
_QUIET = frozenset({"same", "read", "refresh"})


@dataclass
class Watch:
    """What the engine's events told about one operation."""

    progress: Progress
    log: Path
    changes: Counter[str] = field(default_factory=Counter)
    steps: list[tuple[str, str, str]] = field(default_factory=list)
    """Operation, type and name of every resource that changes, in the engine's order."""
    resources: list["Step"] = field(default_factory=list)
    """Every resource that is there before or after, with its inputs: what a plan's price is made from."""
    problems: list[tuple[str, str]] = field(default_factory=list)
    """Resource and message of every error, in the order they came."""
    _running: dict[str, str] = field(default_factory=dict)
    _done: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, event: "EngineEvent") -> None:
        """Take one event; called from the engine's event thread."""
        with self._lock:
            self._take(event)

    def write(self, text: str) -> None:
        """Keep a line of the engine's own output in the log."""
        with self._lock, self.log.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")

    def _take(self, event: "EngineEvent") -> None:
        if event.resource_pre_event:
            step = event.resource_pre_event.metadata
            operation = str(getattr(step.op, "value", step.op))
            name = step.urn.rsplit("::", 1)[-1]
            self.resources.append(_sides(operation, step, name))
            if operation in _QUIET:
                return
            self.changes[operation] += 1
            self.steps.append((operation, step.type, name))
            self._running[step.urn] = f"{operation} {step.type.rsplit(':', 1)[-1]} {name}"
        elif event.res_outputs_event:
            if self._running.pop(event.res_outputs_event.metadata.urn, None):
                self._done += 1
        elif event.res_op_failed_event:
            self._running.pop(event.res_op_failed_event.metadata.urn, None)
        elif event.diagnostic_event and event.diagnostic_event.severity == "error":
            diagnostic = event.diagnostic_event
            self.problems.append((diagnostic.urn or "", diagnostic.message.strip()))
        now = next(iter(self._running.values()), "working")
        self.progress.update(f"{self._done} done, {now}")

    def planned(self) -> str:
        """The changes of a plan, in words."""
        return _counted(f"{count} to {operation}" for operation, count in sorted(self.changes.items()))

    def made(self) -> str:
        """The changes of an operation that is over, in words."""
        return _counted(
            f"{count} {_PAST.get(operation, operation)}" for operation, count in sorted(self.changes.items())
        )


def _counted(parts: Iterable[str]) -> str:
    return ", ".join(parts) or "no changes"


class Engine:
    """One stack of the program."""

    def __init__(self, name: str) -> None:
        """Select the stack, creating it in the back end when it is new.

        Raises:
            InvalidSpec: there is no such stack, or a setting is wrong; nothing was started.
        """
        self.name = name
        self.settings = project.settings(name)
        os.environ.update(home.environment())
        from pulumi.automation import create_or_select_stack

        try:
            self._stack: Stack = create_or_select_stack(name, work_dir=str(project.root()))
        except Exception as error:
            raise self._failed("select", error, None) from error

    def preview(self, title: str = "preview") -> Watch:
        """Run the program and return what an `up` would change."""
        watch = self._watch(title)
        self._run("preview", watch, lambda: self._stack.preview(on_event=watch, on_output=watch.write, color="never"))
        return watch

    def up(self, *, message: str = "") -> Watch:
        """Create or update everything."""
        watch = self._watch(f"up {self.name}")
        self._run(
            "up",
            watch,
            lambda: self._stack.up(
                on_event=watch, on_output=watch.write, color="never", message=message or None, show_secrets=False
            ),
        )
        return watch

    def refresh(self) -> Watch:
        """Read back every resource; creations that were interrupted are looked up, not forgotten."""
        watch = self._watch(f"refresh {self.name}")
        self._run(
            "refresh",
            watch,
            lambda: self._stack.refresh(on_event=watch, on_output=watch.write, color="never", show_secrets=False),
        )
        return watch

    def destroy(self) -> Watch:
        """Delete everything the state knows."""
        watch = self._watch(f"down {self.name}")
        self._run(
            "destroy",
            watch,
            lambda: self._stack.destroy(on_event=watch, on_output=watch.write, color="never", show_secrets=False),
        )
        return watch

    def resources(self) -> list[dict[str, Any]]:
        """The resources in the state."""
        return list(self._deployment().get("resources") or [])

    def interrupted_creations(self) -> list[str]:
        """URNs of the creations that were under way when the engine was killed."""
        pending = self._deployment().get("pending_operations") or []
        return [item["resource"]["urn"] for item in pending if item.get("type") == "creating"]

    def _deployment(self) -> dict[str, Any]:
        return dict(self._stack.export_stack().deployment or {})

    def _watch(self, title: str) -> Watch:
        log = home.logs() / f"{self.name}-{datetime.now(UTC):%Y%m%dT%H%M%S}.log"
        return Watch(Progress(title), log)

    def _run(self, verb: str, watch: Watch, action: Any) -> None:
        try:
            action()
        except Exception as error:
            raise self._failed(verb, error, watch) from error
        finally:
            scratch.clear()

    def _failed(self, verb: str, error: Exception, watch: Watch | None) -> IsthmusError:
        from pulumi.automation import ConcurrentUpdateError

        subject = f"stack {self.name}"
        if isinstance(error, ConcurrentUpdateError):
            return Refused(
                "another update of this stack is running; this one changed nothing",
                subject=subject,
                remedy=f"wait for it, then isthmus {verb if verb != 'destroy' else 'down'} {self.name}",
            )
        if watch is None:
            return IsthmusError(f"pulumi: {_last_line(str(error))}", subject=subject, remedy="isthmus doctor")
        watch.write(str(error))
        if not watch.problems:
            return IsthmusError(f"{verb} failed: {_last_line(str(error))}", subject=subject, remedy=f"see {watch.log}")
        urn, message = _first_cause(watch.problems)
        shown = urn.rsplit("::", 2)[-2:] if urn else [subject]
        remedy = f"{_remedy(message, self.name)}; log: {watch.log}"
        return IsthmusError(_without_remedy(message), subject=" ".join(shown), remedy=remedy)


def _sides(operation: str, step: "StepEventMetadata", name: str) -> "Step":
    """A resource of a plan as its price needs it: what it is before and after this step."""
    from isthmus.costs.plan import Step

    old = dict(step.old.inputs or {}) if step.old else None
    new = dict(step.new.inputs or {}) if step.new else None
    if operation in {"create", "create-replacement"}:
        old = None
    if operation in {"delete", "delete-replaced"}:
        new = None
    return Step(operation, step.type, name, old, new)


def outputs(stack: str) -> dict[str, Any]:
    """The stack's outputs, by the plain command (no Automation API: it is quick to start).

    Raises:
        InvalidSpec: there is no such stack.
        NotFound: the stack was never brought up.
    """
    project.settings(stack)
    environment = {**os.environ, **home.environment()}
    found = subprocess.run(
        ["pulumi", "stack", "output", "--json", "--stack", stack, "--non-interactive"],
        cwd=project.root(), env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    values = json.loads(found.stdout) if found.returncode == 0 and found.stdout.strip() else {}
    if not values:
        raise NotFound(f"stack {stack} is not up", subject=f"stack {stack}", remedy=f"isthmus up {stack}")
    return dict(values)


def kubeconfig_of(stack: str) -> dict[str, Any]:
    """The kubeconfig of a stack's cluster, exec-style: it holds no secret."""
    values = outputs(stack)
    if "kubeconfig" not in values:
        raise NotFound(f"stack {stack} has no cluster yet", subject=f"stack {stack}", remedy=f"isthmus up {stack}")
    kubeconfig = values["kubeconfig"]
    return dict(json.loads(kubeconfig)) if isinstance(kubeconfig, str) else dict(kubeconfig)


def _first_cause(problems: list[tuple[str, str]]) -> tuple[str, str]:
    """The first error about a resource that is not merely the engine's own 'update failed'."""
    for urn, message in problems:
        if (
            urn
            and not urn.endswith("pulumi:pulumi:Stack")
            and message != "update failed"
            and "::pulumi:pulumi:" not in urn
        ):
            return urn, message
    return next(((urn, message) for urn, message in problems if message != "update failed"), problems[0])


def _remedy(message: str, stack: str) -> str:
    """A remedy the far side gave with its error (a line that starts with `next:`), else to run `up` again."""
    for line in message.splitlines():
        if line.strip().startswith("next:"):
            return line.strip().removeprefix("next:").strip()
    return f"isthmus up {stack}"


def _without_remedy(message: str) -> str:
    return "\n".join(line for line in message.splitlines() if not line.strip().startswith("next:"))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    return (errors or lines or ["no message"])[-1]
