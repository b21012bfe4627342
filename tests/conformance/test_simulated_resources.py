"""What every resource type of every simulated cloud must do, over the registries themselves.

A new type fails here until it has an example in tests/conformance/simulated_<cloud>.py.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.simulation import clock, local
from isthmus.simulation.account import CREATING, DELETING, READY, Account
from isthmus.simulation.aws.cloud import CLOUD as AWS
from isthmus.simulation.check import Change
from isthmus.simulation.gcp.cloud import CLOUD as GCP
from isthmus.simulation.operations import Operations
from isthmus.simulation.resource import Cloud, CloudError, Property
from isthmus.toolchain.values import UNKNOWN
from tests.conformance import simulated_aws
from tests.conformance.world import World

EXAMPLES: dict[str, Any] = {AWS.name: simulated_aws}
if importlib.util.find_spec("tests.conformance.simulated_gcp"):
    EXAMPLES[GCP.name] = importlib.import_module("tests.conformance.simulated_gcp")
CLOUDS = [cloud for cloud in (AWS, GCP) if cloud.name in EXAMPLES]
CASES = [(cloud, token) for cloud in CLOUDS for token in sorted(cloud.types)]
every_type = pytest.mark.parametrize(("cloud", "token"), CASES, ids=[token for _, token in CASES])


@pytest.fixture
def world(cloud: Cloud, tmp_path: Path) -> Iterator[World]:
    """An empty account of the cloud."""
    before = local.backend()
    module = EXAMPLES[cloud.name]
    yield World(tmp_path, cloud, module.CONFIGURATION, module.EXAMPLES)
    local.use(before)


@pytest.fixture
def inputs(world: World, token: str) -> dict[str, Any]:
    """Checked inputs of the type; what they name exists."""
    return world.example(token)


@pytest.mark.parametrize("cloud", CLOUDS, ids=[cloud.name for cloud in CLOUDS])
def test_every_type_has_an_example(cloud: Cloud) -> None:
    assert set(EXAMPLES[cloud.name].EXAMPLES) == set(cloud.types)


@every_type
def test_create_gives_every_output(world: World, token: str, inputs: dict[str, Any]) -> None:
    row = world.create(token, inputs)
    expected = {item.name for item in world.kind(token).properties if item.computed or item.filled}
    assert row.state == READY
    assert {name for name in expected if row.outputs.get(name) is None} == set()
    assert {key: row.outputs[key] for key in inputs if not key.startswith("__")}.keys() <= row.outputs.keys()


@every_type
def test_read_gives_what_create_gave(world: World, token: str, inputs: dict[str, Any]) -> None:
    row = world.create(token, inputs)
    read = world.operations.read(token, row.id, row.urn, row.outputs, row.inputs)
    assert read is not None
    assert (read.id, read.outputs, read.inputs) == (row.id, row.outputs, row.inputs)


@every_type
def test_no_change_is_no_diff(world: World, token: str, inputs: dict[str, Any]) -> None:
    row = world.create(token, inputs)
    again = world.checked(token, world.examples[token].inputs(world), olds=row.inputs)
    assert world.operations.diff(token, row.urn, row.inputs, again) == ([], False)


@every_type
def test_update_in_place(world: World, token: str, inputs: dict[str, Any]) -> None:
    change = world.change(token)
    if not change:
        assert all(item.replaces for item in world.kind(token).inputs if item.required), (
            "an example of an update is missing"
        )
        pytest.skip("everything that a program sets replaces")
    row = world.create(token, inputs)
    news = {**inputs, **change}
    changes, _ = world.operations.diff(token, row.urn, row.inputs, news)
    assert changes and not any(item.replaces for item in changes)
    outputs = world.operations.update(token, row.id, row.urn, row.outputs, news)
    assert {key: outputs[key] for key in change} == change
    stored = world.row(token, row.id)
    assert stored is not None and stored.outputs == outputs
    assert world.operations.diff(token, row.urn, stored.inputs, news)[0] == []
    assert outputs.keys() == row.outputs.keys() | change.keys()


@every_type
def test_replacement_is_told(world: World, token: str, inputs: dict[str, Any]) -> None:
    replace = world.examples[token].replace
    row = world.create(token, inputs)
    for item in world.kind(token).inputs:
        if item.replaces and item.kind == "string":
            changes, _ = world.operations.diff(token, row.urn, row.inputs, {**inputs, item.name: "something-else"})
            assert Change(item.name, "update" if item.name in inputs else "add", True) in changes
    if replace:
        changes, first = world.operations.diff(token, row.urn, row.inputs, {**inputs, **replace})
        assert any(item.replaces for item in changes)
        name = world.kind(token).name
        same = name(inputs) is not None and name(inputs) == name({**inputs, **replace})
        assert first == (same or world.kind(token).must_delete_first)


@every_type
def test_delete_twice(world: World, token: str, inputs: dict[str, Any]) -> None:
    row = world.create(token, inputs)
    world.operations.delete(token, row.id, row.urn, row.outputs)
    assert world.row(token, row.id) is None
    world.operations.delete(token, row.id, row.urn, row.outputs)
    assert world.operations.read(token, row.id, row.urn, row.outputs, row.inputs) is None


@every_type
def test_everything_can_be_taken_down_again(world: World, token: str, inputs: dict[str, Any]) -> None:
    world.create(token, inputs)
    for row in reversed(world.account.rows()):
        if row.urn:  # the rest are side effects, which go with what made them
            world.operations.delete(row.type, row.id, row.urn, row.outputs)
    assert world.account.rows() == []
    assert world.backend.list() == []
    for table in ("aliases", "refs", "usage", "placements"):
        assert world.account.database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0


@every_type
def test_import_by_id(world: World, token: str, inputs: dict[str, Any]) -> None:
    row = world.create(token, inputs)
    read = world.again().read(token, row.id, "urn:pulumi:other::test::x::imported", {}, {})
    assert read is not None and read.id == row.id
    assert world.operations.diff(token, row.urn, read.inputs, inputs)[0] == []


@every_type
def test_preview_passes_unknowns_and_makes_nothing(world: World, token: str, inputs: dict[str, Any]) -> None:
    before = len(world.account.rows())
    needed = [item.name for item in world.kind(token).inputs if item.required]
    unknown = dict.fromkeys(needed or [world.kind(token).inputs[0].name], UNKNOWN)
    checked, failures = world.operations.check(token, world.urn(token, "preview"), {**inputs, **unknown}, {}, "seed")
    assert not failures
    outputs = world.operations.preview_create(token, checked)
    assert all(outputs[name] is UNKNOWN for name in unknown if name in outputs)
    assert all(outputs[item.name] is UNKNOWN for item in world.kind(token).outputs)
    assert len(world.account.rows()) == before


@every_type
def test_preview_of_an_update_keeps_what_cannot_change(world: World, token: str, inputs: dict[str, Any]) -> None:
    row = world.create(token, inputs)
    outputs = world.operations.preview_update(token, row.outputs, {**inputs, **world.change(token)})
    for item in world.kind(token).outputs:
        assert outputs[item.name] is UNKNOWN if item.volatile else outputs[item.name] == row.outputs[item.name]


@every_type
def test_unknown_properties_are_refused_by_name(world: World, token: str, inputs: dict[str, Any]) -> None:
    _, failures = world.operations.check(token, world.urn(token), {**inputs, "notAProperty": "x"}, {}, "seed")
    assert [item.property for item in failures] == ["notAProperty"]
    assert "'notAProperty'" in failures[0].reason and token in failures[0].reason
    for item in world.kind(token).inputs:
        if item.kind == "object" and item.fields:
            _, failures = world.operations.check(
                token, world.urn(token), {**inputs, item.name: {"notAField": 1}}, {}, "seed"
            )
            assert f"{item.name}.notAField" in [failure.property for failure in failures]


@every_type
def test_missing_and_ill_typed_inputs_are_refused(world: World, token: str, inputs: dict[str, Any]) -> None:
    for item in world.kind(token).inputs:
        if item.required:
            less = {key: value for key, value in inputs.items() if key != item.name}
            _, failures = world.operations.check(token, world.urn(token), less, {}, "seed")
            assert item.name in [failure.property for failure in failures]
        wrong = {**inputs, item.name: _of_another_type(item)}
        if item.kind != "any":
            _, failures = world.operations.check(token, world.urn(token), wrong, {}, "seed")
            assert [failure.property for failure in failures] == [item.name]
    for item in world.kind(token).outputs:
        _, failures = world.operations.check(token, world.urn(token), {**inputs, item.name: "x"}, {}, "seed")
        assert [failure.property for failure in failures] == [item.name]


@every_type
def test_what_is_named_must_exist(world: World, token: str, inputs: dict[str, Any]) -> None:
    for ref in world.kind(token).refs:
        if "." in ref.path or not isinstance(inputs.get(ref.path), str):
            continue
        count = len(world.account.rows())
        with pytest.raises(CloudError) as refused:
            world.again().create(token, world.urn(token, "other"), {**inputs, ref.path: "no-such-thing"})
        assert refused.value.code and refused.value.message
        assert len(world.account.rows()) == count


@every_type
def test_what_is_in_use_is_not_deleted(world: World, token: str, inputs: dict[str, Any]) -> None:
    row = world.create(token, inputs)
    held = world.account.database.execute(
        "SELECT to_type, to_key FROM refs WHERE type = ? AND key = ? AND holds", (token, row.key)
    ).fetchall()
    for to_type, to_key in held:
        target = world.account.get(to_type, to_key)
        assert target is not None
        with pytest.raises(CloudError):
            world.operations.delete(to_type, target.id, target.urn, target.outputs)
        after = world.account.get(to_type, to_key)
        assert after is not None and after.state == READY


@every_type
def test_a_name_is_given_once(world: World, token: str, inputs: dict[str, Any]) -> None:
    if world.kind(token).name(inputs) is None:
        pytest.skip("the type has no name")
    row = world.create(token, inputs)
    with pytest.raises(CloudError) as refused:
        world.create(token, inputs, "another")
    assert refused.value is not None and refused.value.message
    assert [found.id for found in world.account.rows(token) if found.name == row.name] == [row.id]


@every_type
def test_a_replacement_never_takes_over_the_old_one(world: World, token: str, inputs: dict[str, Any]) -> None:
    """The engine knows the URN: a create must be a new resource, or be refused where the name is taken."""
    row = world.create(token, inputs)
    world.operations.diff(token, row.urn, row.inputs, inputs)
    if not world.unique(token, inputs):
        assert world.create(token, inputs).id != row.id
    else:
        with pytest.raises(CloudError):
            world.create(token, inputs)


@every_type
def test_what_the_engine_never_learnt_of_is_taken_over(world: World, token: str, inputs: dict[str, Any]) -> None:
    """The engine was killed after the cloud had made it: the next `up`, in a new process, gets the same resource."""
    row = world.create(token, inputs)
    count = len(world.account.rows())
    assert world.create(token, inputs, by=world.again()).id == row.id
    assert len(world.account.rows()) == count


@every_type
def test_killed_in_the_middle_of_a_create(world: World, token: str, inputs: dict[str, Any]) -> None:
    _killed_while_creating(world, token, inputs)
    half = [row for row in world.account.rows(token) if row.urn == world.urn(token)]
    assert [row.state for row in half] == [CREATING]
    if world.kind(token).name(inputs) is not None:
        with pytest.raises(CloudError):
            world.create(token, inputs, "another")
    row = world.create(token, inputs, by=world.again())
    assert (row.id, row.state) == (half[0].id, READY)
    assert len([found for found in world.account.rows(token) if found.urn == row.urn]) == 1
    world.operations.delete(token, row.id, row.urn, row.outputs)
    assert world.row(token, row.id) is None


@every_type
def test_read_finishes_what_was_killed(world: World, token: str, inputs: dict[str, Any]) -> None:
    _killed_while_creating(world, token, inputs)
    half = next(row for row in world.account.rows(token) if row.urn == world.urn(token))
    read = world.again().read(token, half.id, half.urn, {}, {})
    assert read is not None and read.state == READY
    assert read.outputs.keys() == world.create(token, inputs, by=world.again()).outputs.keys()


@every_type
def test_a_delete_that_was_killed_is_finished_by_the_next_read(
    world: World, token: str, inputs: dict[str, Any]
) -> None:
    row = world.create(token, inputs)
    world.account.store(token, row.key, state=DELETING, owner="")  # as a kill -9 in the middle leaves it
    assert world.again().read(token, row.id, row.urn, row.outputs, row.inputs) is None
    assert world.row(token, row.id) is None


@every_type
def test_a_delete_that_was_killed_does_not_stand_in_the_way_of_a_create(
    world: World, token: str, inputs: dict[str, Any]
) -> None:
    row = world.create(token, inputs)
    world.account.store(token, row.key, state=DELETING, owner="")
    assert world.create(token, inputs, by=world.again()).state == READY


@every_type
def test_two_processes_create_at_once(world: World, token: str, inputs: dict[str, Any]) -> None:
    """Of a name one wins and the other gets the cloud's refusal; without a name both get one of their own."""

    def attempt(number: int) -> int:
        account = Account(world.account.name, world.account.path)
        try:
            Operations(world.cloud, account, world.config).create(token, world.urn(token, f"writer-{number}"), inputs)
        except CloudError:
            return 3
        return 0

    before = {row.id for row in world.account.rows(token)}
    children = [_fork(functools.partial(attempt, number)) for number in range(2)]
    codes = sorted(map(_wait, children))
    made = [row for row in world.account.rows(token) if row.id not in before and row.urn]
    named = world.unique(token, inputs)
    assert codes == ([0, 3] if named else [0, 0])
    assert len(made) == (1 if named else 2) and all(row.state == READY for row in made)


def _killed_while_creating(world: World, token: str, inputs: dict[str, Any]) -> None:
    """A provider process that is killed by -9 after it has written its intent."""
    told, tell = os.pipe()

    def create() -> int:
        def hang(*_: object) -> None:
            os.write(tell, b"x")
            time.sleep(600)

        clock.spend = hang  # type: ignore[assignment]
        account = Account(world.account.name, world.account.path)
        Operations(world.cloud, account, world.config).create(token, world.urn(token), inputs)
        return 0

    child = _fork(create)
    os.close(tell)
    assert os.read(told, 1) == b"x", "the create ended before its intent was written"
    os.close(told)
    os.kill(child, signal.SIGKILL)
    assert _wait(child) == -signal.SIGKILL
    check: sqlite3.Row = world.account.database.execute("PRAGMA integrity_check").fetchone()
    assert check[0] == "ok"


def _fork(work: Callable[[], int]) -> int:
    """Run in a child process that ends with the function's result as its exit code."""
    child = os.fork()
    if child:
        return child
    try:
        os._exit(work())
    except BaseException as error:  # noqa: BLE001 - a child must never run the parent's tests
        print(repr(error), flush=True)
        os._exit(99)


def _wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _of_another_type(item: Property) -> Any:
    return {"no": "such"} if item.kind in {"string", "bool", "int", "number", "list", "objects"} else "text"
