"""Property values as they travel between the Pulumi engine and a provider.

The wire carries google.protobuf Structs in which secrets, unknowns, outputs and resource references are marked by
signatures (pulumi/pulumi sdk/go/common/resource/properties.go; the constants below are part of the protocol). Inside
a provider a value is a plain Python value; two wrappers are left: `Secret` around a value and the one `UNKNOWN`.
Assets and archives are not understood: no resource type here takes one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from google.protobuf.struct_pb2 import Struct

SIGNATURE_KEY: Final = "4dabf18193072939515e22adb298388d"
SECRET_SIGNATURE: Final = "1b47061264138c4ac30d75fd1eb44270"
OUTPUT_SIGNATURE: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
RESOURCE_SIGNATURE: Final = "5cf8f73096256a8f31e491e813e4eb8e"
UNKNOWN_STRINGS: Final = frozenset(
    {
        "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)
UNKNOWN_STRING: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
CONCEALED: Final = "__concealed"
"""Key of the mark that stands for a secret where values are stored: its digest, never its text."""

Properties = dict[str, Any]


class _Unknown:
    """The value of an output that preview cannot know yet."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __deepcopy__(self, memo: dict[int, Any]) -> _Unknown:
        return self


UNKNOWN: Final = _Unknown()


@dataclass(frozen=True)
class Secret:
    """A value the engine must keep encrypted."""

    value: Any


def decode(struct: Struct) -> Properties:
    """The properties of a Struct; secrets become `Secret`, unknowns become `UNKNOWN`, whole numbers become int."""
    return {key: _decode(value) for key, value in struct.fields.items()}


def encode(properties: Mapping[str, Any]) -> Struct:
    """A Struct of properties that may hold `Secret` and `UNKNOWN`."""
    from google.protobuf.struct_pb2 import Struct

    struct = Struct()
    struct.update({key: _encode(value) for key, value in properties.items()})
    return struct


def has_unknown(value: Any) -> bool:
    """Whether a value is or holds UNKNOWN."""
    if value is UNKNOWN:
        return True
    if isinstance(value, Secret):
        return has_unknown(value.value)
    if isinstance(value, dict):
        return any(has_unknown(item) for item in value.values())
    return isinstance(value, list) and any(has_unknown(item) for item in value)


def has_secret(value: Any) -> bool:
    """Whether a value is or holds a Secret."""
    if isinstance(value, Secret):
        return True
    if isinstance(value, dict):
        return any(has_secret(item) for item in value.values())
    return isinstance(value, list) and any(has_secret(item) for item in value)


def reveal(value: Any) -> Any:
    """The value with every Secret replaced by what it holds."""
    if isinstance(value, Secret):
        return reveal(value.value)
    if isinstance(value, dict):
        return {key: reveal(item) for key, item in value.items()}
    return [reveal(item) for item in value] if isinstance(value, list) else value


def secret_texts(value: Any, *, inside: bool = False) -> set[str]:
    """Every text that a Secret in the value holds, as text."""
    if isinstance(value, Secret):
        return secret_texts(value.value, inside=True)
    if isinstance(value, dict):
        return {text for item in value.values() for text in secret_texts(item, inside=inside)}
    if isinstance(value, list):
        return {text for item in value for text in secret_texts(item, inside=inside)}
    return {value} if inside and isinstance(value, str) and value else set()


def conceal(value: Any) -> Any:
    """The value with every Secret replaced by a mark with its digest: what may be written to a file."""
    if isinstance(value, Secret):
        text = json.dumps(reveal(value.value), sort_keys=True)
        return {CONCEALED: hashlib.sha256(text.encode()).hexdigest()}
    if isinstance(value, dict):
        return {key: conceal(item) for key, item in value.items()}
    return [conceal(item) for item in value] if isinstance(value, list) else value


def is_concealed(value: Any) -> bool:
    """Whether a stored value holds the mark of a secret."""
    if isinstance(value, dict):
        return CONCEALED in value or any(is_concealed(item) for item in value.values())
    return isinstance(value, list) and any(is_concealed(item) for item in value)


def _decode(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _decode_struct(value.struct_value)
    if kind == "list_value":
        return [_decode(item) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if number == int(number) else number
    if kind == "string_value":
        return UNKNOWN if value.string_value in UNKNOWN_STRINGS else value.string_value
    return value.bool_value if kind == "bool_value" else None


def _decode_struct(struct: Struct) -> Any:
    fields = struct.fields
    signature = fields[SIGNATURE_KEY].string_value if SIGNATURE_KEY in fields else ""
    if signature == SECRET_SIGNATURE:
        return Secret(_decode(fields["value"]))
    if signature == OUTPUT_SIGNATURE:
        inner = _decode(fields["value"]) if "value" in fields else UNKNOWN
        return Secret(inner) if "secret" in fields and fields["secret"].bool_value else inner
    if signature == RESOURCE_SIGNATURE:
        return _decode(fields["id"]) if "id" in fields else fields["urn"].string_value
    if signature:
        raise ValueError("assets and archives are not understood by this provider")
    return {key: _decode(item) for key, item in fields.items()}


def _encode(value: Any) -> Any:
    if value is UNKNOWN:
        return UNKNOWN_STRING
    if isinstance(value, Secret):
        return {SIGNATURE_KEY: SECRET_SIGNATURE, "value": _encode(value.value)}
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    return [_encode(item) for item in value] if isinstance(value, (list, tuple)) else value
