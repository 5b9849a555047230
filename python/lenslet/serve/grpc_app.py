"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

from functools import partial
from typing import Any, Awaitable, Callable, Dict, List

import grpc  # type: ignore[import-untyped, import-not-found, unused-ignore]
import grpc.aio  # type: ignore[import-untyped, import-not-found, unused-ignore]

import lenslet

from .http_app import ASIDE_FROM, EXTENSIONS, metadata
from .messages import SERVICE, Inference, message_classes, read_inference
from .protocol import (
    Data,
    Request,
    RequestError,
    Result,
    Tensor,
    checked_shape,
    malformed,
    quoted,
    wanted_of,
)
from .repository import ServedModel
from .service import Service

#: The field of InferTensorContents that holds a datatype's elements. The 16-bit floats have none.
CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
#: Calls beyond the requests that are let in: to say that there are too many, and for health.
SPARE_CALLS = 64
#: Of a message, beside its tensors.
HEADER_BYTES = 1 << 16

Method = Callable[[Any], Awaitable[Any]]


class GrpcApp:
    """The methods of inference.GRPCInferenceService."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._messages = message_classes()

    def server(self) -> grpc.aio.Server:
        """One that has no port yet."""
        limits = self._service.limits
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limits.body + HEADER_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # a port that is taken is an error
            ],
            maximum_concurrent_rpcs=limits.requests + SPARE_CALLS,
        )
        methods: Dict[str, Method] = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._model_infer,
            "RepositoryIndex": self._repository_index,
        }
        handlers = {name: self._handler(name, method) for name, method in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        return server

    def _handler(self, name: str, method: Method) -> Any:
        async def call(message: Any, context: Any) -> Any:
            try:
                return await method(message)
            except RequestError as error:
                code = getattr(grpc.StatusCode, error.grpc)
                line = str(error)
            await context.abort(code, line)

        kind = self._messages[f"{name}Request"]
        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=partial(read_inference, kind) if name == "ModelInfer" else kind.FromString,
            response_serializer=self._messages[f"{name}Response"].SerializeToString,
        )

    async def _server_live(self, _: Any) -> Any:
        return self._messages["ServerLiveResponse"](live=True)

    async def _server_ready(self, _: Any) -> Any:
        return self._messages["ServerReadyResponse"](ready=self._service.ready())

    async def _model_ready(self, message: Any) -> Any:
        served = self._service.repository.find(message.name, message.version)
        return self._messages["ModelReadyResponse"](ready=self._service.ready(served))

    async def _server_metadata(self, _: Any) -> Any:
        made = self._messages["ServerMetadataResponse"]
        return made(name="lenslet", version=lenslet.__version__, extensions=EXTENSIONS)

    async def _model_metadata(self, message: Any) -> Any:
        about = metadata(self._service.repository.find(message.name, message.version))
        about.pop("parameters", None)  # gRPC's message has no place for them
        return self._messages["ModelMetadataResponse"](**about)

    async def _repository_index(self, _: Any) -> Any:
        answer = self._messages["RepositoryIndexResponse"]()
        for served in self._service.repository.models.values():
            state = "UNAVAILABLE" if served.broken else "READY"
            answer.models.add(name=served.name, version="1", state=state, reason=served.broken)
        return answer

    async def _model_infer(self, inference: Inference) -> Any:
        service, message = self._service, inference.message
        with service.counted("grpc") as visit:
            served = service.repository.find(message.model_name, message.model_version)
            visit.enter(served)
            long = not inference.raw and message.ByteSize() >= ASIDE_FROM
            results, _ = await service.infer(served, lambda: read_request(inference), long)
            return self._answer(served, message, results)

    def _answer(self, served: ServedModel, message: Any, results: List[Result]) -> Any:
        """Outputs are raw, as Triton's are."""
        answer = self._messages["ModelInferResponse"](model_name=served.name, model_version="1", id=message.id)
        for result in results:
            answer.outputs.add(name=result.name, datatype=result.datatype, shape=result.shape)
            answer.raw_output_contents.append(result.raw())
        return answer


def _parameters(message: Any) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for name, value in message.parameters.items():
        choice = value.WhichOneof("parameter_choice")
        found[name] = None if choice is None else getattr(value, choice)
    return found


def read_request(inference: Inference) -> Request:
    """An inference request, of a ModelInferRequest."""
    message, raw = inference
    if raw and len(raw) != len(message.inputs):
        raise malformed(f"{len(raw)} raw_input_contents for {len(message.inputs)} inputs")
    tensors: List[Tensor] = []
    for number, entry in enumerate(message.inputs):
        data: Data
        if raw:
            if entry.HasField("contents"):
                raise malformed(f"input {quoted(entry.name)}: has both contents and raw_input_contents")
            data = raw[number]
        else:
            field = CONTENTS.get(entry.datatype)
            if field is None:
                raise malformed(f"input {quoted(entry.name)}: {quoted(entry.datatype)} comes in raw_input_contents")
            data = list(getattr(entry.contents, field))
        tensors.append(Tensor(entry.name, entry.datatype, checked_shape(list(entry.shape), entry.name), data))
    wanted = [wanted_of(output.name, _parameters(output), True) for output in message.outputs]
    return Request(message.id, tensors, wanted, True)
