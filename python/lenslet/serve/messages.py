"""Messages of gRPC's services, made from these tables when the server starts: the Open Inference Protocol's, and gRPC's
for health and reflection.

No code is generated, so any protobuf from 4.25 on works. Separate pools keep them apart from other libraries' messages
of the same names (such as tritonclient's). A ModelInferRequest is not read by them (wire.py).
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Tuple

from google.protobuf import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

INFERENCE, HEALTH = "inference", "grpc.health.v1"
SERVICE = "inference.GRPCInferenceService"
REFLECTIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")

#: Message: its fields, each "type name = number" as in a .proto file, by the specification's numbers. "*" is repeated,
#: "|" of the message's oneof, "#" an enum's; "parameters" are map<string, InferParameter>.
Fields = Dict[str, str]

MESSAGES: Fields = {
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

_HEALTH_MESSAGES: Fields = {
    "HealthCheckRequest": "string service = 1",
    "HealthCheckResponse": "#HealthCheckResponse.ServingStatus status = 1",
}

_REFLECTION_MESSAGES: Fields = {
    "ServerReflectionRequest": "string host = 1, |string file_by_filename = 3, |string file_containing_symbol = 4, "
    "|ExtensionRequest file_containing_extension = 5, |string all_extension_numbers_of_type = 6, "
    "|string list_services = 7",
    "ExtensionRequest": "string containing_type = 1, int32 extension_number = 2",
    "ServerReflectionResponse": "string valid_host = 1, ServerReflectionRequest original_request = 2, "
    "|FileDescriptorResponse file_descriptor_response = 4, "
    "|ExtensionNumberResponse all_extension_numbers_response = 5, "
    "|ListServiceResponse list_services_response = 6, |ErrorResponse error_response = 7",
    "FileDescriptorResponse": "*bytes file_descriptor_proto = 1",
    "ExtensionNumberResponse": "string base_type_name = 1, *int32 extension_number = 2",
    "ListServiceResponse": "*ServiceResponse service = 1",
    "ServiceResponse": "string name = 1",
    "ErrorResponse": "int32 error_code = 1, string error_message = 2",
}

_ONEOFS = {
    "InferParameter": "parameter_choice",
    "ServerReflectionRequest": "message_request",
    "ServerReflectionResponse": "message_response",
}
_ENUMS = {"HealthCheckResponse": ("ServingStatus", ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"))}

#: Methods of SERVICE; the messages of each are METHODRequest and METHODResponse.
METHODS = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer", "RepositoryIndex")

_Field = descriptor_pb2.FieldDescriptorProto


class Package(NamedTuple):
    """`classes` by name: "ModelInferRequest"; nested ones are reached through their messages. `file` is the serialised
    description, `names` are all names in it."""

    classes: Dict[str, Any]
    file_name: str
    file: bytes
    names: Tuple[str, ...]


def _add_fields(message: Any, package: str, full_name: str, fields: str) -> None:
    for field in filter(None, fields.split(", ")):
        kind, _, rest = field.strip().partition(" ")
        if kind == "parameters":
            entry = message.nested_type.add(name="ParametersEntry")
            entry.options.map_entry = True
            _add_fields(entry, package, "", "string key = 1, InferParameter value = 2")
            kind, rest = f"*{full_name}.ParametersEntry", f"parameters {rest}"
        name, number = rest.split(" = ")
        added = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
        if kind[0] == "*":
            added.label = _Field.LABEL_REPEATED
        elif kind[0] == "|":
            if not message.oneof_decl:
                message.oneof_decl.add(name=_ONEOFS[full_name])
            added.oneof_index = 0
        enum = kind[0] == "#"
        kind = kind.lstrip("*|#")
        if kind[0].isupper():
            added.type = _Field.TYPE_ENUM if enum else _Field.TYPE_MESSAGE
            added.type_name = f".{package}.{kind}"
        else:
            added.type = getattr(_Field, f"TYPE_{kind.upper()}")


def _made(package: str, messages: Fields, service: str, methods: Dict[str, Tuple[str, str, bool, bool]]) -> Package:
    """`methods`: the request and response of each, and which of them are streams."""
    file_name = f"lenslet/{package}.proto"
    file = descriptor_pb2.FileDescriptorProto(name=file_name, package=package, syntax="proto3")
    made: Dict[str, Any] = {}
    for full_name, fields in messages.items():
        outer, _, name = full_name.rpartition(".")
        made[full_name] = made[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        if full_name in _ENUMS:
            enum, values = _ENUMS[full_name]
            added = made[full_name].enum_type.add(name=enum)
            for number, value in enumerate(values):
                added.value.add(name=value, number=number)
        _add_fields(made[full_name], package, full_name, fields)
    described = file.service.add(name=service)
    for method, (request, response, many, answers) in methods.items():
        described.method.add(
            name=method, input_type=f".{package}.{request}", output_type=f".{package}.{response}",
            client_streaming=many, server_streaming=answers,
        )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    serialised = bytes(file.SerializeToString())
    pool.AddSerializedFile(serialised)
    names = [f"{package}.{service}", *(f"{package}.{service}.{method}" for method in methods)]
    names += (f"{package}.{name}" for name in messages)
    classes = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
        if "." not in name
    }
    return Package(classes, file_name, serialised, tuple(names))


def packages() -> Dict[str, Package]:
    """By the names of their services."""
    of_inference = {name: (f"{name}Request", f"{name}Response", False, False) for name in METHODS}
    check = ("HealthCheckRequest", "HealthCheckResponse", False)
    made = {
        SERVICE: _made(INFERENCE, MESSAGES, "GRPCInferenceService", of_inference),
        f"{HEALTH}.Health": _made(HEALTH, _HEALTH_MESSAGES, "Health", {"Check": (*check, False), "Watch": (*check, True)}),
    }
    info = {"ServerReflectionInfo": ("ServerReflectionRequest", "ServerReflectionResponse", True, True)}
    for package in REFLECTIONS:
        made[f"{package}.ServerReflection"] = _made(package, _REFLECTION_MESSAGES, "ServerReflection", info)
    return made


def message_classes() -> Dict[str, Any]:
    """Messages of the Open Inference Protocol."""
    return packages()[SERVICE].classes
