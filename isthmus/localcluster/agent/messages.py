"""The messages of two kubelet interfaces, made from a table: DRA plugins (v1) and plugin registration (v1).

Upstream publishes them as .proto files (k8s.io/kubelet v0.36.4, pkg/apis/dra/v1 and pkg/apis/pluginregistration/v1); names
and numbers are theirs. A table of ten messages costs less than a compiler among the dependencies.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DRA = "k8s.io.kubelet.pkg.apis.dra.v1"
REGISTRATION = "pluginregistration"

_TEXT, _FLAG, _MESSAGE = 9, 8, 11  # FieldDescriptorProto.Type
_ONE, _MANY = 1, 3  # FieldDescriptorProto.Label
_Field = dict[str, Any]


def _text(name: str, number: int, *, many: bool = False) -> _Field:
    return {"name": name, "number": number, "type": _TEXT, "label": _MANY if many else _ONE}


def _flag(name: str, number: int) -> _Field:
    return {"name": name, "number": number, "type": _FLAG, "label": _ONE}


def _messages(name: str, number: int, kind: str) -> _Field:
    return {"name": name, "number": number, "type": _MESSAGE, "label": _MANY, "type_name": f".{DRA}.{kind}"}


_CLAIM = (_text("namespace", 1), _text("uid", 2), _text("name", 3))
_DEVICE = (
    _text("request_names", 1, many=True),
    _text("pool_name", 2),
    _text("device_name", 3),
    _text("cdi_device_ids", 4, many=True),
    _text("share_id", 5),
)
_DRA: dict[str, tuple[_Field, ...]] = {
    "Claim": _CLAIM,
    "Device": _DEVICE,
    "NodePrepareResourceResponse": (_messages("devices", 1, "Device"), _text("error", 2)),
    "NodeUnprepareResourceResponse": (_text("error", 1),),
    "NodePrepareResourcesRequest": (_messages("claims", 1, "Claim"),),
    "NodeUnprepareResourcesRequest": (_messages("claims", 1, "Claim"),),
}
_MAPS = {
    "NodePrepareResourcesResponse": "NodePrepareResourceResponse",
    "NodeUnprepareResourcesResponse": "NodeUnprepareResourceResponse",
}
"""Messages with one map, `claims`, from a claim's UID to one of these."""
_REGISTRATION: dict[str, tuple[_Field, ...]] = {
    "PluginInfo": (
        _text("type", 1),
        _text("name", 2),
        _text("endpoint", 3),
        _text("supported_versions", 4, many=True),
    ),
    "RegistrationStatus": (_flag("plugin_registered", 1), _text("error", 2)),
    "RegistrationStatusResponse": (),
    "InfoRequest": (),
}


def _file(package: str, table: dict[str, tuple[_Field, ...]]) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for field in fields:
            message.field.add(**field)
    return file


def _add_map(file: Any, name: str, value: str) -> None:
    message = file.message_type.add(name=name)
    entry = message.nested_type.add(name="ClaimsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_TEXT, label=_ONE)
    entry.field.add(name="value", number=2, type=_MESSAGE, label=_ONE, type_name=f".{DRA}.{value}")
    kind = f".{DRA}.{name}.ClaimsEntry"
    message.field.add(name="claims", number=1, type=_MESSAGE, label=_MANY, type_name=kind)


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    dra = _file(DRA, _DRA)
    for name, value in _MAPS.items():
        _add_map(dra, name, value)
    for file in (dra, _file(REGISTRATION, _REGISTRATION)):
        pool.Add(file)
    names = [(DRA, name) for name in (*_DRA, *_MAPS)] + [(REGISTRATION, name) for name in _REGISTRATION]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for package, name in names
    }


CLASSES = _classes()
"""Message name to its class."""
