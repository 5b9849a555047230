"""The Open Inference Protocol's messages for gRPC, made from this table when the server starts.

No code is generated, so any protobuf from 4.25 on does; and they are in a pool of their own, so that a process may hold
another library's copy of the same names (tritonclient's is one).
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Tuple

from google.protobuf import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

SERVICE = "inference.GRPCInferenceService"

#: Message: its fields, each "type name = number" as in a .proto file, by the specification's numbers. "*" is repeated,
#: "|" of the oneof parameter_choice; "parameters" are map<string, InferParameter>.
MESSAGES = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live = 1",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready = 1",
    "ModelReadyRequest": "string name = 1, string version = 2",
    "ModelReadyResponse": "bool ready = 1",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name = 1, string version = 2, *string extensions = 3",
    "ModelMetadataRequest": "string name = 1, string version = 2",
    "ModelMetadataResponse": "string name = 1, *string versions = 2, string platform = 3, "
    "*ModelMetadataResponse.TensorMetadata inputs = 4, *ModelMetadataResponse.TensorMetadata outputs = 5",
    "ModelMetadataResponse.TensorMetadata": "string name = 1, string datatype = 2, *int64 shape = 3",
    "InferParameter": "|bool bool_param = 1, |int64 int64_param = 2, |string string_param = 3, "
    "|double double_param = 4, |uint64 uint64_param = 5",
    "InferTensorContents": "*bool bool_contents = 1, *int32 int_contents = 2, *int64 int64_contents = 3, "
    "*uint32 uint_contents = 4, *uint64 uint64_contents = 5, *float fp32_contents = 6, *double fp64_contents = 7, "
    "*bytes bytes_contents = 8",
    "ModelInferRequest": "string model_name = 1, string model_version = 2, string id = 3, parameters = 4, "
    "*ModelInferRequest.InferInputTensor inputs = 5, *ModelInferRequest.InferRequestedOutputTensor outputs = 6, "
    "*bytes raw_input_contents = 7",
    "ModelInferRequest.InferInputTensor": "string name = 1, string datatype = 2, *int64 shape = 3, parameters = 4, "
    "InferTensorContents contents = 5",
    "ModelInferRequest.InferRequestedOutputTensor": "string name = 1, parameters = 2",
    "ModelInferResponse": "string model_name = 1, string model_version = 2, string id = 3, parameters = 4, "
    "*ModelInferResponse.InferOutputTensor outputs = 5, *bytes raw_output_contents = 6",
    "ModelInferResponse.InferOutputTensor": "string name = 1, string datatype = 2, *int64 shape = 3, parameters = 4, "
    "InferTensorContents contents = 5",
    "RepositoryIndexRequest": "string repository_name = 1, bool ready = 2",
    "RepositoryIndexResponse": "*RepositoryIndexResponse.ModelIndex models = 1",
    "RepositoryIndexResponse.ModelIndex": "string name = 1, string version = 2, string state = 3, string reason = 4",
}

_Field = descriptor_pb2.FieldDescriptorProto


def _add_fields(message: Any, full_name: str, fields: str) -> None:
    for field in filter(None, fields.split(", ")):
        kind, _, rest = field.strip().partition(" ")
        if kind == "parameters":
            entry = message.nested_type.add(name="ParametersEntry")
            entry.options.map_entry = True
            _add_fields(entry, "", "string key = 1, InferParameter value = 2")
            kind, rest = f"*{full_name}.ParametersEntry", f"parameters {rest}"
        name, number = rest.split(" = ")
        added = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
        if kind[0] == "*":
            added.label = _Field.LABEL_REPEATED
        elif kind[0] == "|":
            if not message.oneof_decl:
                message.oneof_decl.add(name="parameter_choice")
            added.oneof_index = 0
        kind = kind.lstrip("*|")
        if kind[0].isupper():
            added.type, added.type_name = _Field.TYPE_MESSAGE, f".inference.{kind}"
        else:
            added.type = getattr(_Field, f"TYPE_{kind.upper()}")


def message_classes() -> Dict[str, Any]:
    """Classes by name: "ModelInferRequest"; those of nested ones are reached through their messages."""
    file = descriptor_pb2.FileDescriptorProto(name="lenslet/inference.proto", package="inference", syntax="proto3")
    made: Dict[str, Any] = {}
    for full_name, fields in MESSAGES.items():
        outer, _, name = full_name.rpartition(".")
        made[full_name] = made[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        _add_fields(made[full_name], full_name, fields)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}"))
        for name in MESSAGES
        if "." not in name
    }


class Inference(NamedTuple):
    """A ModelInferRequest, whose raw_input_contents, mostly all of it, are left where they came."""

    message: Any
    raw: List[memoryview]


#: The number of ModelInferRequest.raw_input_contents.
RAW = 7


def read_inference(kind: Any, data: bytes) -> Inference:
    """A ModelInferRequest of the class `kind`. protobuf would copy its tensors twice."""
    view = memoryview(data)
    raw: List[memoryview] = []
    others: List[memoryview] = []
    at = 0
    while at < len(data):
        begin = at
        tag, at = _varint(data, at)
        if tag & 7 == 2:
            size, at = _varint(data, at)
            at += size
            if tag >> 3 == RAW and at <= len(data):
                raw.append(view[at - size : at])
                continue
        elif tag & 7 == 0:
            _, at = _varint(data, at)
        else:
            at += {1: 8, 5: 4}.get(tag & 7, len(data))
        others.append(view[begin:at])
    return Inference(kind.FromString(b"".join(others)), raw)  # which judges what is malformed


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    """A number, and where it ends; beyond the end of `data` where there is none."""
    number, shift = 0, 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    return 0, len(data) + 1
