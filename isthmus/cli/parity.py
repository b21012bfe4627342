"""isthmus parity: do stacks carry the same objects?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from isthmus.cli.output import print_json, print_rows, progress
from isthmus.specs.errors import InvalidSpec, NotReady

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isthmus.runs.parity import Difference, Side
    from workloads.bindings import Declared

SHOWN = 40
"""Differences printed at most; --json has all."""


def parity(first: str, *others: str, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Show that stacks carry the same objects, or the exact paths that differ. The exit code is 1 when they differ.

    Compared are the objects of the platform and the sample workloads, as the program renders them and as each cluster
    holds them, without fields that the server sets and without the declared bindings.

    Parameters
    ----------
    first
        Name of a stack, for example aws-sim.
    others
        Names of the stacks to compare it with.
    json
        Print everything as JSON.
    """
    stacks = [first, *others]
    if len(stacks) < 2 or len(set(stacks)) < len(stacks):
        raise InvalidSpec(
            "give two or more different stacks", subject="parity", remedy="isthmus parity aws-sim gcp-sim"
        )
    found = compared(stacks)
    sides, differences, between, equal = found.sides, found.differences, found.between, found.equal
    if json:
        print_json(_as_json(sides, differences, between, equal=equal))
        return 0 if equal else 1
    print_rows(
        [{"stack": one.name, "objects": len(one.objects), "digest": one.digest} for one in sides],
        ["stack", "objects", "digest"],
    )
    for one in sides:
        for text in one.left_out:
            print(f"  left out on {one.name} (declared): {text}")
    if equal:
        print(f"equal: {len(sides[0].objects)} objects, digest {sides[0].digest[:16]}")
        return 0
    for stack, paths in differences.items():
        _print_differences(f"{stack} is not as the program renders it", paths, "program", stack)
    for stack, paths in between.items():
        _print_differences(f"{first} and {stack} differ", paths, first, stack)
    return 1


@dataclass(frozen=True)
class Compared:
    """What a comparison found."""

    sides: "list[Side]"
    differences: "dict[str, list[Difference]]"
    """Of each stack against what the program renders."""
    between: "dict[str, list[Difference]]"
    """Of each further stack against the first."""

    @property
    def count(self) -> int:
        """How many paths differ."""
        return sum(map(len, (*self.differences.values(), *self.between.values())))

    @property
    def equal(self) -> bool:
        """Whether none does."""
        return not self.count

    @property
    def digest(self) -> str:
        """Of the first stack's objects; all have it where they are equal."""
        return self.sides[0].digest


def compared(stacks: "Sequence[str]") -> Compared:
    """Read stacks and compare them with the program and with the first."""
    from isthmus.cli.project import settings
    from isthmus.runs import parity as comparing
    from workloads import bindings

    rules = bindings.declared(settings(stack).cloud for stack in stacks)
    sides = [_read(stack, rules) for stack in stacks]
    return Compared(
        sides,
        {one.name: comparing.missing(_rendered(one.name), one, rules) for one in sides},
        {one.name: comparing.compare(sides[0].objects, one.objects) for one in sides[1:]},
    )


def _read(stack: str, rules: "Sequence[Declared]") -> "Side":
    from isthmus.cli.run import cluster_of
    from isthmus.runs import parity as comparing

    with progress(f"parity {stack}") as line:
        line.update("reading objects")
        cluster = cluster_of(stack)
        one = comparing.side(stack, comparing.read(cluster), rules)
    if not one.objects:
        raise NotReady(
            f"stack {stack} holds no object of ours, so there is nothing to compare",
            subject=f"stack {stack}",
            remedy=f"isthmus up {stack}",
        )
    return one


def _rendered(stack: str) -> list[dict[str, Any]]:
    """What the program deploys into every cluster: operators and samples, as __main__.py composes them."""
    from isthmus.cli.project import settings
    from isthmus.specs import labels
    from operators import device_plugin, dra, training
    from workloads import bindings, render

    chosen = settings(stack)
    binding = bindings.for_cloud(chosen.cloud)
    objects = [
        *render.namespace(labels.RUNS_NAMESPACE, labels.RUNS_ACCOUNT, {}),
        *training.manifests(chosen.operators),
    ]
    if not binding.provides_device_plugin:
        objects += device_plugin.manifests(chosen.cluster.pools)
    objects += dra.manifests(chosen.cluster.pools)
    for name in chosen.samples:
        objects += render.render(render.load(name), namespace=labels.RUNS_NAMESPACE, binding=binding)
    return objects


def _print_differences(title: str, found: "list[Difference]", left: str, right: str) -> None:
    if not found:
        return
    print(f"\n{title}:")
    for item in found[:SHOWN]:
        print(f"  {item.object}  {item.path or '(the object)'}")
        print(f"      {left}: {_short(item.left)}")
        print(f"      {right}: {_short(item.right)}")
    if len(found) > SHOWN:
        print(f"  and {len(found) - SHOWN} more; --json shows all")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:200] + "..."


def _as_json(
    sides: "list[Side]", program: "dict[str, list[Difference]]", between: "dict[str, list[Difference]]", *, equal: bool
) -> dict[str, Any]:
    return {
        "equal": equal,
        "stacks": [
            {"stack": one.name, "objects": len(one.objects), "digest": one.digest, "left_out": list(one.left_out)}
            for one in sides
        ],
        "against_program": {stack: [vars(item) for item in found] for stack, found in program.items()},
        "between": {stack: [vars(item) for item in found] for stack, found in between.items()},
    }
