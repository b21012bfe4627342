"""What a simulated cloud does when asked: create, read, update, delete and invoke over an account and a registry.

`server.py` is the same in gRPC. Order of a create: look (references, faults, quota, capacity) and write the intent in
one transaction; let the simulated time pass; run the type's hook; mark it ready. After a kill -9 in between, a create
of the same URN continues the intent, as a client request token does with the real clouds; a create from another URN
of a name that is taken gets the cloud's own refusal.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import replace as replaced
from typing import Any

from isthmus.simulation import account as accounts
from isthmus.simulation import capacity, clock, faults, quota
from isthmus.simulation.account import Account, Row, key_of
from isthmus.simulation.check import DEFAULTS_KEY, Change, Failure, checked, differences, named
from isthmus.simulation.resource import Call, Cloud, CloudError, Placement, ResourceType, walk
from isthmus.toolchain.values import (
    UNKNOWN,
    Properties,
    Secret,
    conceal,
    has_secret,
    is_concealed,
    reveal,
    secret_texts,
)

DETACH_WAIT_SECONDS = 900.0
"""How long a delete waits for interfaces of deleted machines (the AWS provider's own delete timeouts are 10 to 20 min)."""


class Operations:
    """The operations of one configured provider."""

    def __init__(self, cloud: Cloud, account: Account, config: Properties) -> None:
        self.cloud = cloud
        self.account = account
        self.config = config
        self.cancelled = threading.Event()
        self._known: set[str] = set()

    def knows(self, urn: str) -> bool:
        """Whether the engine has shown, since this provider started, that its state holds the URN."""
        return urn in self._known

    def note_known(self, urn: str) -> None:
        """The engine's state holds this URN: a create of it from now on is a replacement, never a continuation."""
        self._known.add(urn)

    def check(
        self, token: str, urn: str, news: Properties, olds: Properties, seed: str
    ) -> tuple[Properties, list[Failure]]:
        """Inputs with a made-up name and the provider's defaults, and every fault in them."""
        kind = self._kind(token)
        if olds:
            self.note_known(urn)
        inputs, failures = checked(kind.properties, news, owner=token)
        if failures:
            return inputs, failures
        inputs = self.cloud.defaults(kind, inputs, self.config)
        return named(kind, inputs, olds, urn.rpartition("::")[2], seed if self.knows(urn) else urn), []

    def diff(self, token: str, urn: str, olds: Properties, news: Properties) -> tuple[list[Change], bool]:
        """What changes, and whether a replacement must delete the old one first."""
        kind = self._kind(token)
        self.note_known(urn)
        changes = differences(kind, olds, news)
        if not any(change.replaces for change in changes):
            return changes, False
        same_name = kind.name(reveal(news)) is not None and kind.name(reveal(news)) == kind.name(reveal(olds))
        return changes, kind.must_delete_first or same_name

    def preview_create(self, token: str, inputs: Properties) -> Properties:
        """Outputs as far as they can be known before the create."""
        kind = self._kind(token)
        unknown = {item.name: UNKNOWN for item in kind.properties if item.computed or item.filled}
        return {**unknown, **_with_defaults(kind, inputs)}

    def preview_update(self, token: str, olds: Properties, inputs: Properties) -> Properties:
        """Outputs as far as they can be known before the update: computed ones stay, volatile ones become unknown."""
        kind = self._kind(token)
        stay = {
            item.name: UNKNOWN if item.volatile else olds[item.name]
            for item in kind.properties
            if (item.computed or item.filled) and item.name in olds
        }
        return {**stay, **_with_defaults(kind, inputs)}

    def create(self, token: str, urn: str, inputs: Properties, timeout: float = 0.0) -> tuple[str, Properties]:
        """Create a resource, or continue a create that was killed.

        Returns:
            The id and the outputs.

        Raises:
            CloudError: the cloud refuses; nothing was made.
            Cancelled: the engine gave up; the intent stays and the next create continues it.
        """
        kind = self._kind(token)
        faults.strike(self.account, "create", token, self.cancelled)
        with self.account.transaction():
            call, row = self._intend(kind, urn, inputs, timeout)
        if row.state == accounts.READY:
            if not differences(kind, row.inputs, conceal(inputs)):
                return row.id, _uncover(row.outputs, inputs)
            return row.id, self.update(token, row.id, urn, row.outputs, inputs, timeout=timeout)
        return row.id, self._finish_create(call, inputs)

    def read(self, token: str, identity: str, urn: str, known: Properties, known_inputs: Properties) -> Row | None:
        """A resource as it is now, by id (or, on import, any name the cloud has for it); None when it is gone."""
        kind = self._kind(token)
        faults.strike(self.account, "read", token, self.cancelled)
        row = self.account.find(token, identity, self._region(known or known_inputs))
        if row is None:
            return None
        if known or known_inputs:
            self.note_known(urn)
        if row.state == accounts.DELETING and not accounts.is_alive(row.owner):
            # Killed in the middle of a delete: what is half gone is no resource, so the delete is finished.
            kind.delete(self._call(kind, row.urn, row.inputs, row))
            self.account.remove(token, row.key)
            return None
        if row.state == accounts.CREATING:
            if accounts.is_alive(row.owner):
                return row
            self.account.store(token, row.key, owner=accounts.this_process())
            self._finish_create(replaced(self._call(kind, row.urn, row.inputs, row), resumed=True), row.inputs)
            row = self.account.get(token, row.key) or row
        call = self._call(kind, row.urn, row.inputs, row)
        outputs = {**row.outputs, **kind.read(call)}
        return replaced(row, outputs=_uncover(outputs, known), inputs=_uncover(row.inputs, known_inputs))

    def update(
        self, token: str, identity: str, urn: str, olds: Properties, inputs: Properties, timeout: float = 0.0
    ) -> Properties:
        """Change a resource in place and return its outputs; after a failure it is as it was.

        Raises:
            CloudError: it is gone, or the cloud refuses.
        """
        kind = self._kind(token)
        self.note_known(urn)
        faults.strike(self.account, "update", token, self.cancelled)
        with self.account.transaction():
            row = self.account.get(token, self._key(kind, olds, identity))
            if row is None:
                raise kind.missing(identity)
            call = replaced(self._call(kind, urn, inputs, row), timeout=timeout)
            kind.validate(call)
            self._record(call)
        try:
            clock.spend(self.account, 1.0, self.cancelled)
            computed = {**_computed(kind, row.outputs, call.inputs), **kind.update(call)}
        except BaseException:
            with self.account.transaction():
                self.account.store(token, row.key, inputs=row.inputs, outputs=row.outputs)
                self._record(self._call(kind, urn, row.inputs, row), strict=False)
            raise
        return self._store(call, inputs, computed, urn)

    def delete(self, token: str, identity: str, urn: str, olds: Properties, timeout: float = 0.0) -> None:
        """Delete a resource; one that is gone already is no error.

        Raises:
            CloudError: something still uses it.
        """
        kind = self._kind(token)
        self.note_known(urn)
        faults.strike(self.account, "delete", token, self.cancelled)
        key = self._key(kind, olds, identity)
        self._wait_detached(kind, key, timeout or DETACH_WAIT_SECONDS)
        with self.account.transaction():
            row = self.account.get(token, key)
            if row is None:
                return
            holders = self.account.holders(token, key)
            if holders:
                raise kind.busy(row.name or row.id, holders[0])
            self.account.store(token, key, state=accounts.DELETING, owner=accounts.this_process())
        call = replaced(self._call(kind, urn, row.inputs, row), timeout=timeout)
        try:
            clock.spend(
                self.account, clock.duration(self.account, f"delete {urn}", kind.delete_seconds), self.cancelled
            )
            kind.delete(call)
        except Exception:  # it is still there, so it is what it was; only a killed process leaves it half deleted
            self.account.store(token, key, state=accounts.READY)
            raise
        self.account.remove(token, key)

    def invoke(self, token: str, arguments: Properties) -> tuple[Properties, list[Failure]]:
        """Call a function of the cloud.

        Raises:
            CloudError: there is no such function here, or it refuses.
        """
        function = self.cloud.functions.get(token)
        if function is None:
            raise CloudError("UnknownFunction", f"the simulated cloud has no function {token}", status=501)
        given, failures = checked(function.arguments, arguments, owner=token)
        if failures:
            return {}, failures
        faults.strike(self.account, "invoke", token, self.cancelled)
        return function.run(reveal(given), self.config, self.account), []

    def _kind(self, token: str) -> ResourceType:
        kind = self.cloud.types.get(token)
        if kind is None:
            raise CloudError("UnknownType", f"the simulated cloud has no resource type {token}", status=501)
        return kind

    def _region(self, properties: Properties) -> str:
        return self.cloud.region_of(reveal(properties), self.config)

    def _place(self, kind: ResourceType, inputs: Properties) -> str:
        return "" if kind.everywhere else self.cloud.region_of(inputs, self.config)

    def _key(self, kind: ResourceType, properties: Properties, identity: str) -> str:
        """The key of a resource the engine knows by its id: in the place its state names, else wherever it is seen."""
        row = self.account.find(kind.token, identity, self._region(properties))
        return row.key if row else key_of(self._region(properties), identity)

    def _call(self, kind: ResourceType, urn: str, inputs: Properties, row: Row | None) -> Call:
        plain = _with_defaults(kind, reveal(inputs))
        plain.pop(DEFAULTS_KEY, None)
        return Call(
            account=self.account,
            type=kind,
            urn=urn,
            id=row.id if row else "",
            inputs=plain,
            outputs=dict(row.outputs) if row else {},
            old_inputs=dict(row.inputs) if row else {},
            stored_inputs=conceal(inputs),
            config=self.config,
            region=row.region if row else self._place(kind, plain),
            cancelled=self.cancelled,
        )

    def _intend(self, kind: ResourceType, urn: str, inputs: Properties, timeout: float) -> tuple[Call, Row]:
        """Inside a transaction: the row to work on, a new one or one to continue."""
        call = replaced(self._call(kind, urn, inputs, None), timeout=timeout)
        name = kind.name(call.inputs)
        earlier = self._earlier(kind, urn, inputs, call.region, name)
        if earlier is not None and earlier.state == accounts.READY:
            return call, earlier
        call.id = earlier.id if earlier else ""
        kind.validate(call)
        if earlier is None:
            call.id = kind.make_id(call)
            moment = clock.now(self.account)
            row = Row(
                type=kind.token,
                key=call.key,
                id=call.id,
                urn=urn,
                name=name,
                region=call.region,
                state=accounts.CREATING,
                inputs=conceal(inputs),
                outputs={},
                owner=accounts.this_process(),
                created_at=moment,
                updated_at=moment,
            )
            self.account.insert(row)
        else:
            intent = {"inputs": conceal(inputs), "state": accounts.CREATING, "owner": accounts.this_process()}
            self.account.store(kind.token, call.key, **intent)
            row = earlier
            call.resumed = True
        self._record(call)
        return call, row

    def _earlier(self, kind: ResourceType, urn: str, inputs: Properties, region: str, name: str | None) -> Row | None:
        """A row this create continues: the same URN's own intent, or what the engine never learnt was made."""
        taken = self.account.named(kind.token, region, name) if name is not None else None
        if taken is not None and taken.urn != urn:
            raise kind.exists(taken.name or taken.id)
        candidates = [taken] if taken is not None else self.account.rows(kind.token, urn=urn) if name is None else []
        for row in candidates:
            if row.state != accounts.READY and not accounts.is_alive(row.owner):
                return row
            if row.state == accounts.READY and not self.knows(urn) and self._same_making(kind, row, inputs):
                return row
        if taken is not None:
            raise kind.exists(taken.name or taken.id)
        return None

    def _same_making(self, kind: ResourceType, row: Row, inputs: Properties) -> bool:
        return not any(change.replaces for change in differences(kind, row.inputs, inputs))

    def _record(self, call: Call, *, strict: bool = True) -> None:
        """Inside a transaction: references, quota and capacity of a resource, each checked."""
        kind, identity = call.type, (call.type.token, call.key)
        self.account.set_refs(*identity, self._references(call, strict))
        quotas = self.cloud.quotas
        refuse_quota, refuse_capacity = self.cloud.over_quota(call), self.cloud.out_of_capacity(call)
        unlimited: Any = (lambda code: None) if not strict else quotas.get
        quota.take(self.account, identity, kind.usage(call), unlimited, refuse_quota)
        places: Iterable[Placement] = kind.placements(call)
        if strict:
            capacity.place(self.account, identity, places, self.cloud.zones(call.region), refuse_capacity)
        else:
            capacity.put_back(self.account, identity, places)

    def _references(self, call: Call, strict: bool) -> list[tuple[str, str, bool]]:
        found: list[tuple[str, str, bool]] = []
        for ref in call.type.refs:
            for value in walk(call.inputs, ref.path):
                row = call.find(ref.token, str(value))
                if row is not None:
                    found.append((ref.token, row.key, ref.holds))
                elif strict and not ref.foreign(str(value)):
                    raise (ref.missing or self._kind(ref.token).missing)(str(value))
        return found

    def _finish_create(self, call: Call, inputs: Properties) -> Properties:
        kind = call.type
        try:
            seconds = clock.duration(self.account, f"create {call.urn}", kind.create_seconds)
            clock.spend(self.account, seconds, self.cancelled)
            computed = kind.create(call)
        except CloudError:
            self.account.remove(kind.token, call.key)
            raise
        except BaseException:
            self.account.store(kind.token, call.key, owner="")
            raise
        return self._store(call, inputs, computed, call.urn)

    def _store(self, call: Call, inputs: Properties, computed: Properties, urn: str) -> Properties:
        kind = call.type
        outputs = {**call.inputs, **computed}
        call.outputs = outputs
        texts = secret_texts(inputs)
        for name, value in outputs.items():
            declared = kind.property(name)
            derived = texts and any(text in json.dumps(value) for text in texts)
            if derived or has_secret(inputs.get(name)) or (declared is not None and declared.secret):
                outputs[name] = Secret(value)
        with self.account.transaction():
            self.account.store(
                kind.token,
                call.key,
                state=accounts.READY,
                urn=urn,
                inputs=conceal(inputs),
                outputs=conceal(outputs),
                updated_at=clock.now(self.account),
            )
            call.outputs = reveal(outputs)
            self.account.set_aliases(kind.token, call.key, kind.aliases(call))
        return outputs

    def _wait_detached(self, kind: ResourceType, key: str, seconds: float) -> None:
        """Wait, within limits, until interfaces of deleted machines have left this resource (case A04)."""
        deadline = time.monotonic() + seconds
        while left := faults.lingering(self.account, kind.token, key):
            holder, remaining = left[0]
            if time.monotonic() >= deadline:
                raise self.cloud.still_attached(kind, key.partition("/")[2], holder)
            clock.wait(min(remaining, 1.0, max(deadline - time.monotonic(), 0.01)), self.cancelled)


def _with_defaults(kind: ResourceType, inputs: Properties) -> Properties:
    defaults = {item.name: item.default for item in kind.inputs if item.default is not None}
    return {**defaults, **{key: value for key, value in inputs.items() if key != DEFAULTS_KEY}}


def _computed(kind: ResourceType, outputs: Properties, inputs: Properties) -> Properties:
    """What the cloud itself chose so far: computed outputs, and filled inputs that the program still leaves open."""
    return {
        item.name: outputs[item.name]
        for item in kind.properties
        if item.name in outputs and (item.computed or (item.filled and item.name not in inputs))
    }


def _uncover(stored: Properties, known: Properties) -> Properties:
    """Stored properties with the engine's own secrets in place of their marks."""
    return {key: known.get(key, UNKNOWN) if is_concealed(value) else value for key, value in stored.items()}
