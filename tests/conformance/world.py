"""A simulated account in a folder, with everything that an example of a resource type names already in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.simulation import local
from isthmus.simulation.account import Account, Row
from isthmus.simulation.operations import Operations
from isthmus.simulation.resource import Cloud, ResourceType
from isthmus.toolchain.values import Properties
from tests.local_backend import FileBackend


@dataclass(frozen=True)
class Example:
    """How to make one resource of a type, and what to change on it."""

    inputs: Callable[[World], dict[str, Any]]
    change: dict[str, Any] | Callable[[World], dict[str, Any]] = field(default_factory=dict)
    """An update in place, or how to make it in a world; empty where everything replaces."""
    replace: dict[str, Any] = field(default_factory=dict)
    """A change that replaces; empty where nothing does."""
    alone: bool = False
    """The cloud takes no second one with the same inputs, though the type has no name (a subnet's block)."""


class World:
    """One account of one cloud, worked on as the engine does it: check, then create."""

    def __init__(self, folder: Path, cloud: Cloud, configuration: Properties, examples: dict[str, Example]) -> None:
        self.folder, self.cloud, self.examples = folder, cloud, examples
        self.backend = FileBackend(folder / "clusters")
        local.use(self.backend)  # type: ignore[arg-type]
        name = cloud.account_of(configuration)
        self.account = Account(name, folder / f"{name}.db")
        self.config = cloud.configure(configuration, name)
        self.operations = Operations(cloud, self.account, self.config)
        self._made: dict[tuple[str, str], tuple[str, Properties]] = {}

    def again(self) -> Operations:
        """A provider process started anew on the same account: it has seen no URN."""
        return Operations(self.cloud, self.account, self.config)

    def kind(self, token: str) -> ResourceType:
        return self.cloud.types[token]

    def urn(self, token: str, name: str = "example") -> str:
        return f"urn:pulumi:dev::test::{token}::{name}"

    def checked(
        self, token: str, inputs: Properties, name: str = "example", olds: Properties | None = None
    ) -> Properties:
        """Inputs as the engine gets them back from check; a failure is an error of the test."""
        found, failures = self.operations.check(token, self.urn(token, name), inputs, olds or {}, "seed")
        assert not failures, failures
        return found

    def example(self, token: str) -> Properties:
        """Valid inputs of a type; what they name exists."""
        return self.checked(token, self.examples[token].inputs(self))

    def change(self, token: str) -> Properties:
        """The update in place of a type; what it names exists."""
        change = self.examples[token].change
        return change(self) if callable(change) else change

    def unique(self, token: str, inputs: Properties) -> bool:
        """Whether the cloud refuses a second resource with these inputs."""
        return self.examples[token].alone or self.kind(token).name(inputs) is not None

    def create(self, token: str, inputs: Properties, name: str = "example", *, by: Operations | None = None) -> Row:
        """Create one and return it as the account holds it."""
        identity, _ = (by or self.operations).create(token, self.urn(token, name), inputs)
        row = self.row(token, identity)
        assert row is not None
        return row

    def row(self, token: str, identity: str) -> Row | None:
        """What the account holds of a type under an id."""
        return next((row for row in self.account.rows(token) if row.id == identity), None)

    def made(self, token: str, name: str = "needed", inputs: Properties | None = None) -> Properties:
        """Outputs of a resource that others need, made on first use."""
        if (token, name) not in self._made:
            given = inputs if inputs is not None else self.examples[token].inputs(self)
            self._made[token, name] = self.operations.create(
                token, self.urn(token, name), self.checked(token, given, name)
            )
        return self._made[token, name][1]

    def id(self, token: str, name: str = "needed", inputs: Properties | None = None) -> str:
        """Id of a resource that others need, made on first use."""
        self.made(token, name, inputs)
        return self._made[token, name][0]
