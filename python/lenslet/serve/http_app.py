"""The Open Inference Protocol over HTTP, as an ASGI application: JSON, and JSON with binary tensors behind it."""

from __future__ import annotations

import json
import math
import traceback
from typing import Any, Awaitable, Callable, Dict, List, NamedTuple, Optional, Tuple

import lenslet

from .protocol import (
    DATATYPES,
    Buffer,
    Data,
    Request,
    RequestError,
    Result,
    Tensor,
    Wanted,
    checked_shape,
    malformed,
    parameters_of,
    quoted,
    wanted_of,
)
from .repository import ServedModel
from .rooms import Room
from .service import Disconnected, Service, Visit

Message = Dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Dict[bytes, bytes]

EXTENSIONS = ["binary_tensor_data", "classification", "model_repository"]
JSON = b"application/json"
#: JSON of more bytes is read and written in a thread aside: a megabyte takes some 20 ms.
ASIDE_FROM = 1 << 16
#: What was read of so many heads of requests is kept, of at most so many bytes each.
KNOWN_HEADS, HEAD_BYTES = 64, 4096

Answer = Tuple[int, bytes, List[Tuple[bytes, bytes]]]


def metadata(served: ServedModel) -> Dict[str, Any]:
    """What a client may know of a model."""
    card = served.card
    about: Dict[str, Any] = {
        "name": served.name,
        "versions": ["1"],
        "platform": "lenslet_onnx",
        "inputs": [
            {"name": port.name, "datatype": DATATYPES[port.dtype], "shape": list(shape)}
            for port, shape in zip(served.inputs, served.input_shapes)
        ],
        "outputs": [
            {"name": port.name, "datatype": DATATYPES[port.dtype], "shape": list(shape)}
            for port, shape in zip(served.outputs, served.output_shapes)
        ],
    }
    if card is not None:
        about["parameters"] = {
            "image_input": served.picture_name,
            "image_replaces": card.input,
            "preparation": card.preparation,
        }
    return about


class HttpApp:
    """`ASGI <https://asgi.readthedocs.io>`_, version 3, for a server that gives a body whole and cancels the task when
    the client goes (http_connection.py)."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.rooms = service.rooms

    def room_for(self, path: str, head: int, rest: int) -> Room:
        """Where a body for `path` is to be read to: `head` bytes of JSON, and the `rest`."""
        parts = path.split("/", 4)
        named = len(parts) == 5 and parts[:3] == ["", "v2", "models"]
        return self.rooms.take(head, rest, self._service.repository.models.get(parts[3]) if named else None)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            status, body, headers = await self._answer(scope, receive)
        except RequestError as error:
            status, body, headers = error.status, _error(str(error)), _of_error(error)
        except Disconnected:
            return
        except Exception:  # a fault of ours
            traceback.print_exc()
            status, body, headers = 500, _error("internal error"), [(b"content-type", JSON)]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Message, receive: Receive) -> Answer:
        method = scope["method"]
        parts = scope["path"].split("/")[1:]
        if parts and parts[-1] == "":
            parts.pop()
        service = self._service
        if parts[:2] == ["v2", "models"] and len(parts) >= 3:
            name, version, rest = parts[2], "", parts[3:]
            if len(rest) >= 2 and rest[0] == "versions":
                version, rest = rest[1], rest[2:]
            if rest == ["infer"]:
                with service.counted("http") as visit:
                    _only("POST", method)
                    return await self._infer(service.repository.find(name, version), visit, scope, receive)
            if rest in ([], ["ready"]):
                _only("GET", method)
                served = service.repository.find(name, version)
                if not rest:
                    return _json(200, metadata(served))
                ready = service.ready(served)
                return _json(200 if ready else 503, {"name": served.name, "ready": ready})
        elif parts == ["v2"]:
            _only("GET", method)
            return _json(200, {"name": "lenslet", "version": lenslet.__version__, "extensions": EXTENSIONS})
        elif parts == ["v2", "health", "live"]:
            _only("GET", method)
            return _json(200, {"live": True})
        elif parts == ["v2", "health", "ready"]:
            _only("GET", method)
            ready = service.ready()
            return _json(200 if ready else 503, {"ready": ready})
        elif parts == ["v2", "repository", "index"]:
            _only("POST", method)
            return _json(200, [_index(served) for served in service.repository.models.values()])
        elif parts == ["metrics"]:
            _only("GET", method)
            return 200, service.metrics.text(), [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
        raise RequestError("unknown", f"no such path: {quoted(scope['path'])}")

    async def _infer(self, served: ServedModel, visit: Visit, scope: Message, receive: Receive) -> Answer:
        headers: Headers = dict(scope["headers"])
        length = _number(headers, b"content-length")
        if length is not None and length > self._service.limits.body:
            raise RequestError("too_large", f"a body of {length} bytes: at most {self._service.limits.body}")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise RequestError("encoding", "a compressed body is not taken")
        visit.enter(served)
        body, room = await self._body(receive)
        long = len(body) >= ASIDE_FROM and b"inference-header-content-length" not in headers
        head = None if room is None else room.head

        def read() -> Request:
            return read_request(served, headers, body, head)

        results, request = await self._service.infer(served, read, long, room)
        plain = sum(result.values.size for result in results if not (result.binary or isinstance(result.values, list)))
        if plain * 16 < ASIDE_FROM:
            return write_answer(served, request, results)
        return await self._service.aside(lambda: write_answer(served, request, results))

    async def _body(self, receive: Receive) -> Tuple[Buffer, Optional[Room]]:
        """All of it, within the limits; where there is a room, its `head` has the JSON, and this is the rest."""
        limits = self._service.limits
        message = await receive()
        if message["type"] == "lenslet.late":
            raise RequestError("timeout", f"the body did not come in {limits.seconds:g} s")
        if message["type"] == "http.disconnect":
            raise Disconnected
        if message["more_body"]:
            raise RequestError("too_large", f"a body of more than {limits.body} bytes")
        room: Optional[Room] = message.get("lenslet.room")
        return (message["body"], None) if room is None else (room.rest, room)


def _only(wanted: str, method: str) -> None:
    if method != wanted:
        raise RequestError("method", f"{quoted(method)} where {wanted} is meant")


def _number(headers: Headers, name: bytes) -> Optional[int]:
    """A count in a header; None where it is not there."""
    text = headers.get(name)
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise malformed(f"{name.decode()} is no number of bytes: {quoted(text.decode('latin-1'))}")
    return int(text)


def _json(status: int, value: object) -> Answer:
    return status, json.dumps(value).encode(), [(b"content-type", JSON)]


def _error(line: str) -> bytes:
    return json.dumps({"error": line}).encode()


def _of_error(error: RequestError) -> List[Tuple[bytes, bytes]]:
    headers = [(b"content-type", JSON)]
    if error.kind in ("queue_full", "memory"):
        headers.append((b"retry-after", b"1"))
    if error.kind == "method":
        headers.append((b"allow", b"POST" if str(error).endswith("POST is meant") else b"GET"))
    if error.kind == "timeout":
        headers.append((b"connection", b"close"))
    return headers


def _index(served: ServedModel) -> Dict[str, str]:
    return {
        "name": served.name,
        "version": "1",
        "state": "UNAVAILABLE" if served.broken else "READY",
        "reason": served.broken,
    }


# ---- Requests ----


def read_request(served: ServedModel, headers: Headers, body: Buffer, head: Optional[Buffer] = None) -> Request:
    """An inference request, of JSON and of what the header Inference-Header-Content-Length says is behind it: the rest
    of `body`, or all of it where `head` has the JSON."""
    json_bytes = _number(headers, b"inference-header-content-length")
    if json_bytes == 0:
        return _raw_request(served, headers, body)
    if json_bytes is None:
        head, body = body, b""
    elif not head:
        if json_bytes > len(body):
            raise malformed(f"Inference-Header-Content-Length is {json_bytes}, the body has {len(body)} bytes")
        head, body = body[:json_bytes], memoryview(body)[json_bytes:]
    text = bytes(head)
    known = _known_heads.get(text)
    if known is None:
        known = _read_head(text)
        if len(text) <= HEAD_BYTES and not any(tensor.data for tensor, _ in known.inputs):
            while len(_known_heads) >= KNOWN_HEADS:
                del _known_heads[next(iter(_known_heads))]
            _known_heads[text] = known
    rest = memoryview(body)
    tensors: List[Tensor] = []
    for tensor, size in known.inputs:
        if size is None:
            tensors.append(tensor)
            continue
        if size > len(rest):
            raise malformed(
                f"input {quoted(tensor.name)}: 'binary_data_size' is {size}, {len(rest)} bytes are there"
            )
        tensors.append(tensor._replace(data=rest[:size]))
        rest = rest[size:]
    if len(rest):
        raise malformed(f"{len(rest)} bytes at the end of the body are no input's")
    return Request(known.id, tensors, known.wanted, known.binary)


class _Head(NamedTuple):
    """What the JSON of a request says."""

    id: str
    inputs: List[Tuple[Tensor, Optional[int]]]  # with its bytes behind the JSON, where they are there
    wanted: List[Wanted]
    binary: bool


#: A client's requests mostly have the same head: what the last ones said, where they held no elements.
_known_heads: Dict[bytes, _Head] = {}


def _read_head(text: bytes) -> _Head:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise malformed(f"the body is no JSON: {error or type(error).__name__}") from None
    if not isinstance(value, dict):
        raise malformed("the body is no JSON object")
    id = value.get("id", "")
    if not isinstance(id, str):
        raise malformed("'id' is no string")
    inputs = value.get("inputs")
    if not isinstance(inputs, list):
        raise malformed("'inputs' is no list")
    parameters = parameters_of(value.get("parameters"), "the request")
    binary = parameters.get("binary_data_output", False)
    if not isinstance(binary, bool):
        raise malformed("'binary_data_output' is true or false")
    return _Head(id, [_tensor(entry) for entry in inputs], _wanted(value.get("outputs"), binary), binary)


def _tensor(entry: object) -> Tuple[Tensor, Optional[int]]:
    """An entry of "inputs", and how many bytes behind the JSON are its elements."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise malformed("an input has no 'name'")
    name, datatype = entry["name"], entry.get("datatype")
    if not isinstance(datatype, str):
        raise malformed(f"input {quoted(name)}: 'datatype' is no string")
    shape = checked_shape(entry.get("shape"), name)
    parameters = parameters_of(entry.get("parameters"), f"input {quoted(name)}")
    size = parameters.get("binary_data_size")
    data: Data
    if size is None:
        data = entry.get("data", ())
        if not isinstance(data, list):
            raise malformed(f"input {quoted(name)}: 'data' is no list")
        return Tensor(name, datatype, shape, data, parameters.get("content_type") == "base64"), None
    if "data" in entry:
        raise malformed(f"input {quoted(name)}: has both 'data' and 'binary_data_size'")
    if type(size) is not int or size < 0:
        raise malformed(f"input {quoted(name)}: 'binary_data_size' is {quoted(size)}, which is no number of bytes")
    return Tensor(name, datatype, shape, b""), size


def _wanted(outputs: object, binary: bool) -> List[Wanted]:
    if outputs is None:
        return []
    if not isinstance(outputs, list):
        raise malformed("'outputs' is no list")
    found: List[Wanted] = []
    for entry in outputs:
        if not isinstance(entry, dict):
            raise malformed("an output is no object")
        parameters = parameters_of(entry.get("parameters"), f"output {quoted(entry.get('name'))}")
        found.append(wanted_of(entry.get("name"), parameters, binary))
    return found


def _raw_request(served: ServedModel, headers: Headers, body: Buffer) -> Request:
    """A body without JSON: the only input's elements, or, as Content-Type: image/..., one picture."""
    if headers.get(b"content-type", b"").startswith(b"image/"):
        return Request("", [Tensor(served.picture_name, "BYTES", (1,), [body])], [])
    if len(served.inputs) != 1:
        raise malformed(f"model '{served.name}' has {len(served.inputs)} inputs: they need a header of JSON")
    port, shape = served.inputs[0], served.input_shapes[0]
    fixed = math.prod(shape[1:] if served.batchable else shape) * served.dtypes[0].itemsize
    if not served.fixed or fixed == 0:
        raise malformed(f"model '{served.name}' takes more than one shape: its input needs a header of JSON")
    if served.batchable:
        shape = (len(body) // fixed, *shape[1:])
    return Request("", [Tensor(port.name, DATATYPES[port.dtype], shape, body)], [], True)


# ---- Answers ----


_encoder = json.JSONEncoder(allow_nan=False)


def write_answer(served: ServedModel, request: Request, results: List[Result]) -> Answer:
    """JSON, with the binary outputs behind it where there are some."""
    outputs: List[Dict[str, Any]] = []
    parts: List[bytes] = []
    for result in results:
        output: Dict[str, Any] = {"name": result.name, "datatype": result.datatype, "shape": list(result.shape)}
        if result.binary:
            parts.append(result.raw())
            output["parameters"] = {"binary_data_size": len(parts[-1])}
        elif isinstance(result.values, list):
            output["data"] = [value.decode("utf-8", "replace") for value in result.values]
        else:
            output["data"] = result.values.ravel().tolist()
        outputs.append(output)
    answer: Dict[str, Any] = {"model_name": served.name, "model_version": "1", "outputs": outputs}
    if request.id:
        answer["id"] = request.id
    try:
        head = _encoder.encode(answer).encode()
    except ValueError:
        raise RequestError(
            "run", f"model '{served.name}': outputs that JSON cannot say (NaN, inf): ask for binary data"
        )
    if not parts:
        return 200, head, [(b"content-type", JSON)]
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"inference-header-content-length", str(len(head)).encode()),
    ]
    return 200, b"".join([head, *parts]), headers
