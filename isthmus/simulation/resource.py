"""What a simulated resource type declares: properties as data, behaviour as small functions.

One `ResourceType` per Pulumi type token. `server.py` does everything that is the same for all of them (checking, diff,
preview, intent rows, references, quotas, capacity, faults), so a declaration holds only what the cloud itself decides.
README.md in this folder shows one. Nothing here talks to the engine or to SQLite.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from isthmus.toolchain.values import Properties

if TYPE_CHECKING:
    from isthmus.simulation.account import Account, Row
    from isthmus.simulation.quota import Quota

Kind = Literal["string", "bool", "int", "number", "list", "map", "object", "objects", "any"]
"""`list` holds plain values, `object` one nested record, `objects` a list of them, `map` free keys."""

Fidelity = Literal["recorded", "documented", "assumed"]
"""How a behaviour is known: seen from the cloud, written in its documents, or our guess."""


class CloudError(Exception):
    """A refusal by the simulated cloud, in the cloud's own words.

    Args:
        code: the cloud's error code, for example DependencyViolation.
        message: the cloud's own text.
        status: the HTTP status the cloud answers with.
        remedy: what to type to change the simulated cloud's mind; printed on a line of its own, "" for none.
    """

    def __init__(self, code: str, message: str, *, status: int = 400, remedy: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.remedy = remedy


@dataclass(frozen=True)
class Property:
    """One property of a resource type, or of a nested record, under its camelCase name."""

    name: str
    kind: Kind = "string"
    required: bool = False
    replaces: bool = False
    """Changing it replaces the resource."""
    computed: bool = False
    """An output only: refused as an input, unknown in the preview of a create."""
    filled: bool = False
    """An input that the cloud chooses when it is not given; then it is unknown in preview."""
    default: Any = None
    """The value shown in outputs when the input is not given; known in preview."""
    secret: bool = False
    volatile: bool = False
    """A computed output that every update may change, so it is unknown in the preview of an update."""
    unordered: bool = False
    """A list in which order means nothing (the cloud keeps a set)."""
    json: bool = False
    """A string of JSON: two texts of the same document are equal."""
    choices: tuple[str, ...] = ()
    fields: tuple[Property, ...] = ()
    """The nested properties understood, for `object` and `objects`."""


@dataclass(frozen=True)
class Ref:
    """A property that names another resource, which must exist and (if `holds`) cannot be deleted meanwhile.

    `path` is dotted; lists on the way are walked (`vpcConfig.subnetIds`). A value that none of the target's ids and
    aliases matches gives the target type's own not-found error, unless `foreign` accepts it (an AWS-managed policy).
    """

    path: str
    token: str
    holds: bool = True
    foreign: Callable[[str], bool] = lambda value: False
    missing: Callable[[str], CloudError] | None = None
    """The refusal where it is not the target type's own."""


@dataclass(frozen=True)
class Usage:
    """What one resource takes of an account quota."""

    code: str
    amount: float
    place: str
    """The region or zone in which it counts, "" for the whole account."""


@dataclass(frozen=True)
class Placement:
    """Machines that one resource takes in a zone."""

    zone: str
    machine: str
    count: int
    spot: bool = False


@dataclass(frozen=True)
class Behaviour:
    """One line of the fidelity ledger (COVERAGE.md)."""

    what: str
    fidelity: Fidelity
    source: str = ""


@dataclass(frozen=True)
class Autoname:
    """How a name is made when the program gives none: logical name, a dash and seven hex digits (as Pulumi does)."""

    property: str = "name"
    prefix_property: str = ""
    """A property that, when given, is the prefix instead of the logical name."""
    max_length: int = 255
    lower: bool = False
    suffix: bool = True


@dataclass
class Call:
    """One operation on one resource, as a hook sees it."""

    account: Account
    type: ResourceType
    urn: str
    id: str
    inputs: Properties
    """Checked inputs, secrets revealed, defaults of the declaration filled in."""
    outputs: Properties
    """Outputs so far: empty for a create."""
    old_inputs: Properties
    stored_inputs: Properties
    """The inputs as they are kept in the account: what a hook may write there before it is done."""
    config: Properties
    """The provider's configuration: region, account id, project."""
    region: str
    resumed: bool = False
    """A create that continues one which was killed."""
    timeout: float = 0.0
    """The program's customTimeouts in seconds, 0 for the type's own."""
    cancelled: threading.Event = field(default_factory=threading.Event)

    def find(self, token: str, reference: str) -> Row | None:
        """Another resource of the account by id or alias."""
        return self.account.find(token, reference, self.region)

    @property
    def key(self) -> str:
        """What the account knows this resource by."""
        return f"{self.region}/{self.id}"

    def changed(self, *names: str) -> bool:
        """Whether any of these inputs differs from the last accepted ones."""
        return any(self.inputs.get(name) != self.old_inputs.get(name) for name in names)


Hook = Callable[[Call], Properties]


def _nothing(call: Call) -> Properties:
    return {}


def _no_aliases(call: Call) -> tuple[str, ...]:
    return ()


def _refuses_nothing(call: Call) -> None:
    return None


@dataclass(frozen=True)
class ResourceType:
    """Everything the simulation knows about one Pulumi resource type.

    Hooks: `validate` runs inside the account's transaction, before an intent is written, and only looks; `create`,
    `update` and `delete` run outside any transaction and must be safe to repeat after a kill -9 (they get the same
    id); what `create`, `update` and `read` return is laid over the inputs to make the outputs.
    """

    token: str
    noun: str
    """How the cloud's own messages call it: "EC2 VPC", "EKS Cluster"."""
    properties: tuple[Property, ...]
    make_id: Callable[[Call], str]
    create: Hook = _nothing
    update: Hook = _nothing
    read: Hook = _nothing
    delete: Callable[[Call], None] = _refuses_nothing
    validate: Callable[[Call], None] = _refuses_nothing
    name: Callable[[Properties], str | None] = lambda inputs: None
    """The natural name that is unique in the account (and region, unless `everywhere`), or None."""
    everywhere: bool = False
    """The natural name is unique in the whole account, not per region (IAM, bucket names)."""
    aliases: Callable[[Call], tuple[str, ...]] = _no_aliases
    """Other strings by which properties of other resources name this one: ARN, self link, name."""
    refs: tuple[Ref, ...] = ()
    autoname: Autoname | None = None
    usage: Callable[[Call], tuple[Usage, ...]] = lambda call: ()
    placements: Callable[[Call], tuple[Placement, ...]] = lambda call: ()
    must_delete_first: bool = False
    """A replacement must delete the old one before it creates the new one, whatever the name."""
    exists: Callable[[str], CloudError] = lambda name: CloudError("AlreadyExists", f"{name} already exists", status=409)
    missing: Callable[[str], CloudError] = lambda name: CloudError("NotFound", f"{name} does not exist", status=404)
    busy: Callable[[str, Row], CloudError] = lambda name, user: CloudError(
        "ResourceInUse", f"{name} is in use by {user.id}"
    )
    create_seconds: tuple[float, float] = (0.0, 0.0)
    """How long the real cloud takes to create one, from and to, in seconds; scaled by the account's latency scale."""
    delete_seconds: tuple[float, float] = (0.0, 0.0)
    behaviours: tuple[Behaviour, ...] = ()

    @property
    def inputs(self) -> tuple[Property, ...]:
        """The properties a program may set."""
        return tuple(item for item in self.properties if not item.computed)

    @property
    def outputs(self) -> tuple[Property, ...]:
        """The properties only the cloud sets."""
        return tuple(item for item in self.properties if item.computed)

    def property(self, name: str) -> Property | None:
        """The declared property of that name, or None."""
        return next((item for item in self.properties if item.name == name), None)


@dataclass(frozen=True)
class Function:
    """An invoke: a token, the arguments understood and a function of (arguments, configuration, account)."""

    token: str
    arguments: tuple[Property, ...]
    run: Callable[[Properties, Properties, Account], Properties]
    behaviours: tuple[Behaviour, ...] = ()


@dataclass(frozen=True)
class Cloud:
    """One simulated cloud: what a provider server serves."""

    name: str
    version: str
    types: Mapping[str, ResourceType]
    functions: Mapping[str, Function]
    configuration: tuple[Property, ...]
    """Provider arguments understood."""
    account_of: Callable[[Properties], str]
    """The simulated account's name from the provider's arguments (AWS profile, GCP project)."""
    configure: Callable[[Properties, str], Properties]
    """What hooks see as `config`, from the provider's arguments and the account's name. Raises CloudError."""
    region_of: Callable[[Properties, Properties], str]
    """Where a resource is, from its inputs and the configuration; "" for a global one."""
    render: Callable[[str, ResourceType | None, str, CloudError], str]
    """The error text as the real provider prints it: (verb, type, name, error)."""
    quotas: Mapping[str, Quota]
    over_quota: Callable[[Call], Callable[[Quota, float, float, float], CloudError]]
    """The cloud's refusal when a quota is passed: of the call, then of (quota, limit, used, asked for)."""
    out_of_capacity: Callable[[Call], Callable[[Placement, list[str]], CloudError]]
    """The cloud's refusal when a zone has no such machine: of the call, then of (placement, zones with room)."""
    zones: Callable[[str], tuple[str, ...]]
    """The zones of a region."""
    still_attached: Callable[[ResourceType, str, str], CloudError]
    """The refusal when an interface does not leave: (type, id, interface)."""
    defaults: Callable[[ResourceType, Properties, Properties], Properties] = lambda kind, inputs, config: inputs
    """Laid over the inputs at check: default tags or labels."""


def registry(*types: ResourceType) -> dict[str, ResourceType]:
    """Types by token. Two declarations of one token are a programming error."""
    found = {kind.token: kind for kind in types}
    if len(found) != len(types):
        raise ValueError("a resource type is declared twice")
    return found


def walk(value: Any, path: str) -> Iterator[Any]:
    """Every value at a dotted path, walking lists on the way; nothing where the path ends early."""
    if isinstance(value, list):
        for item in value:
            yield from walk(item, path)
        return
    if not path:
        if value is not None:
            yield value
        return
    head, _, rest = path.partition(".")
    if isinstance(value, Mapping) and head in value:
        yield from walk(value[head], rest)
