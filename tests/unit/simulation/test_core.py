"""The parts under every simulated cloud: values, checking, the account's file, the clock, faults, quotas, capacity."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from isthmus.simulation import capacity, clock, faults, quota
from isthmus.simulation.account import READY, Account, Row, is_alive, key_of, open_account, this_process
from isthmus.simulation.check import Change, checked, differences
from isthmus.simulation.names import LIMIT, local_name
from isthmus.simulation.quota import Quota
from isthmus.simulation.resource import CloudError, Placement, Property, ResourceType, Usage, walk
from isthmus.specs.errors import NotFound
from isthmus.toolchain import values
from isthmus.toolchain.values import UNKNOWN, Secret, conceal, decode, encode, reveal

NEVER = threading.Event()


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account("test", tmp_path / "test.db")


def row(identity: str, name: str | None = None, **changes: Any) -> Row:
    moment = "2026-01-01T00:00:00Z"
    fields: dict[str, Any] = {
        "type": "t", "key": key_of("r", identity), "id": identity, "urn": f"urn:{identity}", "name": name, "region": "r", "state": READY,
        "inputs": {}, "outputs": {}, "owner": "", "created_at": moment, "updated_at": moment,
    }  # fmt: skip
    return Row(**{**fields, **changes})


# Values


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": 1.5, "c": True, "d": None, "e": "text", "f": [1, {"g": "h"}]},
        {"unknown": UNKNOWN, "inside": [{"deep": UNKNOWN}]},
        {"secret": Secret({"a": "b"}), "list": [Secret("c")]},
    ],
)
def test_values_survive_the_wire(value: dict[str, Any]) -> None:
    assert decode(encode(value)) == value


def test_outputs_and_references_are_read() -> None:
    output = {values.SIGNATURE_KEY: values.OUTPUT_SIGNATURE, "value": "v", "secret": True}
    unknown = {values.SIGNATURE_KEY: values.OUTPUT_SIGNATURE}
    reference = {values.SIGNATURE_KEY: values.RESOURCE_SIGNATURE, "urn": "urn:x", "id": "vpc-1"}
    found = decode(encode({"output": output, "unknown": unknown, "reference": reference}))
    assert found == {"output": Secret("v"), "unknown": UNKNOWN, "reference": "vpc-1"}
    with pytest.raises(ValueError, match="assets"):
        decode(encode({"asset": {values.SIGNATURE_KEY: "c44067f5952c0a294b673a41bacd8c17"}}))


def test_what_is_written_holds_no_secret() -> None:
    written = conceal({"a": [Secret("hidden")], "b": "open"})
    assert "hidden" not in str(written) and written["b"] == "open"
    assert conceal(Secret("hidden")) == conceal(Secret("hidden")) != conceal(Secret("other"))
    assert values.is_concealed(written["a"]) and not values.is_concealed(written["b"])
    assert reveal({"a": [Secret("x")]}) == {"a": ["x"]}


# Checking and comparing

KIND = ResourceType(
    token="t",
    noun="Thing",
    properties=(
        Property("name", replaces=True),
        Property("size", "int", default=1),
        Property("zones", "list", unordered=True),
        Property("order", "list"),
        Property("policy", json=True),
        Property("tags", "map"),
        Property("rule", "object", fields=(Property("port", "int"), Property("proto", replaces=True))),
        Property("rules", "objects", fields=(Property("port", "int", required=True),)),
        Property("arn", computed=True),
    ),
    make_id=lambda call: "",
)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {}, []),
        ({}, {"size": 1}, []),
        ({"size": 1}, {}, []),
        ({"size": 1}, {"size": 2}, [Change("size", "update", False)]),
        ({"name": "a"}, {"name": "b"}, [Change("name", "update", True)]),
        ({"zones": ["a", "b"]}, {"zones": ["b", "a"]}, []),
        (
            {"order": ["a", "b"]},
            {"order": ["b", "a"]},
            [Change("order[0]", "update", False), Change("order[1]", "update", False)],
        ),
        ({"policy": '{"a": 1, "b": 2}'}, {"policy": '{"b":2,"a":1}'}, []),
        ({"policy": '{"a": 1}'}, {"policy": '{"a": 2}'}, [Change("policy", "update", False)]),
        ({}, {"tags": {}}, []),
        ({"tags": {"a.b": "1"}}, {"tags": {}}, [Change('tags["a.b"]', "delete", False)]),
        ({"rule": {"port": 1}}, {"rule": {"port": 1, "proto": "udp"}}, [Change("rule.proto", "add", True)]),
        ({"rules": [{"port": 1}]}, {"rules": [{"port": 1}, {"port": 2}]}, [Change("rules[1]", "add", False)]),
        ({"size": 2}, {"size": UNKNOWN}, [Change("size", "update", False)]),
        ({"name": UNKNOWN}, {"name": UNKNOWN}, [Change("name", "update", True)]),
        ({"name": Secret("a")}, {"name": "a"}, []),
        ({"size": True}, {"size": 1}, [Change("size", "update", False)]),
    ],
)
def test_differences(old: dict[str, Any], new: dict[str, Any], expected: list[Change]) -> None:
    assert differences(KIND, old, new) == expected


def test_checking_names_every_fault_at_once() -> None:
    given = {
        "nam": "x",
        "size": "big",
        "rules": [{"port": 1}, {"prt": 2}],
        "arn": "x",
        "rule": {"port": UNKNOWN},
        "tags": None,
    }
    _, failures = checked(KIND.properties, given, owner="t")
    assert {item.property for item in failures} == {"nam", "size", "rules[1].port", "rules[1].prt", "arn"}
    assert "did you mean 'name'?" in next(item.reason for item in failures if item.property == "nam")


def test_walk() -> None:
    assert list(walk({"a": [{"b": ["x", "y"]}, {"b": ["z"]}, {}]}, "a.b")) == ["x", "y", "z"]
    assert list(walk({"a": None}, "a")) == [] and list(walk({}, "a.b")) == []


# The account's file


def test_the_file_is_the_owner_s_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Account("test", tmp_path / "test.db")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "test.db").stat().st_mode) == 0o600


def test_a_failed_transaction_leaves_nothing(account: Account) -> None:
    with pytest.raises(RuntimeError), account.transaction():
        account.insert(row("a"))
        with account.transaction():
            account.set_refs("t", key_of("r", "a"), [("t", key_of("r", "b"), True)])
        raise RuntimeError
    assert account.rows() == [] and account.holders("t", key_of("r", "b")) == []


def test_find_by_id_and_alias_in_what_a_region_sees(account: Account) -> None:
    account.insert(row("a"))
    account.insert(row("g", region="", key=key_of("", "g")))
    account.set_aliases("t", key_of("r", "a"), ["arn:a", "", "a"])
    assert account.find("t", "arn:a", "r") == account.find("t", "a", "r") == row("a")
    assert account.find("t", "arn:a", "elsewhere") is None
    assert account.find("t", "a", "r-b") is not None, "a zone sees its region"
    found = account.find("t", "g", "elsewhere")
    assert found is not None and found.id == "g"
    account.remove("t", key_of("r", "a"))
    assert account.find("t", "arn:a", "r") is None


def test_a_new_process_reads_what_another_wrote(account: Account) -> None:
    account.insert(row("a", "name", inputs={"x": [1]}))
    again = Account("test", account.path)
    assert again.rows() == [row("a", "name", inputs={"x": [1]})]
    assert again.named("t", "r", "name") is not None


def test_hex_digits_are_the_same_in_equal_histories(tmp_path: Path) -> None:
    first, second = Account("a", tmp_path / "1.db"), Account("a", tmp_path / "2.db")
    other = Account("b", tmp_path / "3.db")
    made = [first.hexadecimal("x", 17) for _ in range(3)]
    assert made == [second.hexadecimal("x", 17) for _ in range(3)]
    assert len(set(made)) == 3 and other.hexadecimal("x", 17) not in made


def test_owners() -> None:
    assert is_alive(this_process())
    pid, _, start = this_process().partition(":")
    assert not is_alive(f"{pid}:{int(start) + 1}"), "the pid was given to another process"
    assert not is_alive("") and not is_alive("999999999:1")


def test_unknown_accounts_are_named_with_those_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    open_account("aws-sim")
    with pytest.raises(NotFound, match="no simulated account 'other'; known: aws-sim"):
        open_account("other", create=False)


# Clock


def test_the_clock_moves_by_simulated_time_and_waits_scaled(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(clock, "wait", lambda seconds, cancelled: waits.append(seconds))
    assert clock.now(account) == "2026-01-01T00:00:00Z"
    clock.spend(account, 513, NEVER)
    assert clock.now(account) == "2026-01-01T00:08:33Z" and waits == [0.0]
    account.set_setting(clock.SCALE_SETTING, "0.01")
    clock.spend(account, 100, NEVER)
    assert waits[1] == pytest.approx(1.0)
    monkeypatch.setenv(clock.SCALE_VARIABLE, "0.5")
    assert clock.scale(account) == 0.5


def test_durations_are_seeded(account: Account) -> None:
    drawn = {clock.duration(account, f"key {number}", (10, 20)) for number in range(20)}
    assert len(drawn) == 20 and all(10 <= value <= 20 for value in drawn)
    assert clock.duration(account, "key 1", (10, 20)) in drawn


def test_a_cancelled_wait_ends() -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(clock.Cancelled):
        clock.wait(60, cancelled)
    clock.wait(0, cancelled)


# Faults


def test_a_fault_acts_on_the_n_th_call_of_its_type(account: Account) -> None:
    faults.add(account, faults.Fault("error", type="aws:eks/*", nth=2, times=2, code="Boom", message="no"))
    outcomes = []
    for token in ("aws:eks/a:A", "aws:ec2/b:B", "aws:eks/a:A", "aws:eks/c:C", "aws:eks/a:A"):
        try:
            faults.strike(account, "create", token, NEVER)
            outcomes.append("ok")
        except CloudError as error:
            outcomes.append(error.code)
    assert outcomes == ["ok", "ok", "Boom", "Boom", "ok"]
    faults.strike(account, "delete", "aws:eks/a:A", NEVER)
    (found,) = faults.ordered(account)
    assert found.seen == 4 and found.spent
    assert faults.remove(account) == 1 and faults.ordered(account) == []


def test_latency_waits_and_times_0_is_for_ever(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(clock, "wait", lambda seconds, cancelled: waits.append(seconds))
    faults.add(account, faults.Fault("latency", "read", seconds=3, times=0))
    for _ in range(3):
        faults.strike(account, "read", "x", NEVER)
    assert waits == [3, 3, 3]


# Quotas and capacity

CPUS = Quota("L-1", "vCPUs", "vcpus", 0, 8, "test")


def take(account: Account, identity: str, amount: float, place: str = "r") -> None:
    quota.take(
        account,
        ("t", identity),
        [Usage("L-1", amount, place)],
        {"L-1": CPUS}.get,
        lambda item, limit, used, asked: CloudError("Limit", f"{item.code} {limit:g} {used:g} {asked:g}"),
    )


def test_a_quota_counts_what_there_is(account: Account) -> None:
    take(account, "a", 6)
    with pytest.raises(CloudError, match="L-1 8 6 4"):
        take(account, "b", 4)
    take(account, "b", 4, "elsewhere")
    take(account, "b", 2)
    take(account, "a", 5)
    assert quota.used(account, "L-1", "r") == 7


def test_lowering_a_limit_takes_nothing_away_but_stops_growth(account: Account) -> None:
    take(account, "a", 6)
    quota.set_limit(account, "L-1", 0)
    take(account, "a", 6)
    take(account, "a", 2)
    with pytest.raises(CloudError):
        take(account, "a", 3)


def test_a_region_s_limit_wins(account: Account) -> None:
    quota.set_limit(account, "L-1", 1)
    quota.set_limit(account, "L-1", 3, "us-east-1")
    assert quota.limit(account, CPUS, "us-east-1") == quota.limit(account, CPUS, "us-east-1a") == 3
    assert quota.limit(account, CPUS, "eu-west-1") == 1
    quota.set_limit(account, "L-1", 5)
    assert quota.limit(account, CPUS, "us-east-1") == 5, "a limit for everywhere replaces those of regions"


def test_zone_capacity(account: Account) -> None:
    def place(identity: str, count: int, zone: str = "z-a") -> None:
        capacity.place(
            account, ("t", identity), [Placement(zone, "m", count)], ["z-a", "z-b"],
            lambda item, others: CloudError("Stockout", f"{item.zone} {item.count} {others}"),
        )  # fmt: skip

    place("a", 100)
    capacity.set_available(account, "z-a", "m", 102)
    with pytest.raises(CloudError, match=r"z-a 3 \['z-b'\]"):
        place("b", 3)
    place("b", 2)
    assert capacity.available(account, "z-a", "m") == 0
    capacity.set_available(account, "z-a", "m", 0)
    place("a", 90)
    with pytest.raises(CloudError):
        place("a", 91)
    capacity.set_available(account, "z-a", "m", None)
    place("c", 1000)


# Names of local clusters


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("aws-sim", "us-east-1", "isthmus"), "aws-sim-us-east-1-isthmus"),
        (("gcp-sim", "northamerica-northeast1", "isthmus"), "gcp-sim-northamerica-northeast1-isthmus"),
    ],
)
def test_local_names_are_readable(parts: tuple[str, str, str], expected: str) -> None:
    assert local_name(*parts) == expected


def test_local_names_fit_and_differ() -> None:
    made = [local_name("account-name", "ap-southeast-2", f"Training_cluster_{n}") for n in range(5)]
    made += [local_name("9", "r", "x"), local_name("account", "r", "a_b"), local_name("account", "r", "a-b")]
    assert len(set(made)) == len(made)
    assert all(len(name) <= LIMIT and name[0].isalpha() and name == name.lower() and "_" not in name for name in made)
