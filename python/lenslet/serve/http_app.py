"""The Open Inference Protocol over HTTP: JSON, and JSON followed by binary tensors."""

from __future__ import annotations

import asyncio
import json
import math
import time
import traceback
import urllib.parse
from functools import partial
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import lenslet
from lenslet.detector import MOST

from . import json_text
from .deadline import Deadline
from .http_exchange import Answer, Exchange, Headers
from .memory import Hold, Memory
from .page import Page, Reports
from .protocol import (
    DATATYPES,
    HEAD_BYTES,
    Array,
    Boxes,
    Buffer,
    Data,
    KnownHeads,
    Request,
    RequestError,
    Result,
    Tensor,
    Wanted,
    checked_shape,
    malformed,
    parameters_of,
    quoted,
    timeout_of,
    wanted_of,
)
from .repository import ServedModel
from .rooms import Room
from .service import HELD_FROM, Disconnected, Service, Visit
from .turns import Turns

EXTENSIONS = ["binary_tensor_data", "classification", "model_repository"]
JSON = b"application/json"
#: Longer JSON is read and written in another thread: a megabyte takes some 20 ms.
ASIDE_FROM = 1 << 16
#: Maximum share of the event loop's time for the metrics, and maximum seconds at once.
METRICS_SHARE, METRICS_SECONDS = 0.2, 0.1

#: Length of a number in JSON, at most, as float32 is written: "-1.1754943508222875e-38, ".
NUMBER_BYTES = 25
#: Numbers written at a time.
WRITTEN = 1 << 13

#: Boxes of an answer, at most; bytes of one in JSON without its label, and of one that is compared with others.
MOST_BOXES, BOX_BYTES, DETECTION_BYTES = 1000, 256, 160
#: Bytes of a label's character in JSON, at most.
CHARACTER_BYTES = 12


def metadata(served: ServedModel) -> Dict[str, Any]:
    """A model's public metadata."""
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
            "image_classes": card.output,
            "preparation": card.preparation,
        }
        if card.boxes:
            about["parameters"]["image_boxes"] = True
        if served.guess:
            about["parameters"]["preparation_guess"] = served.guess
    return about


class HttpApp:
    """Answers requests for connections that deliver a body as a whole (http_connection.py)."""

    def __init__(self, service: Service, page: Optional[Page] = None) -> None:
        self._service, self._page, self._reports = service, page, Reports(service.memory)
        self.memory, self.rooms, self.when_full = service.memory, service.rooms, service.when_full
        self._text, self._spent, self._asked = b"", 0.0, 0.0
        self.turns = Turns(asyncio.get_running_loop(), service.limits.queue_seconds)
        self._others = Turns(asyncio.get_running_loop(), 0)

    def comes(self, exchange: Exchange) -> bool:
        """A request is complete: whether it waits for its turn."""
        if not exchange.path.startswith("/v2/models/") or exchange.method == "GET":
            return False
        try:
            self.turns.add()
        except RequestError as error:
            exchange.refuse(error)
            return False
        return True

    def takes(self, exchange: Exchange, length: int) -> bool:
        """Whether its body will be read."""
        return exchange.path.startswith("/v2/models/") and length <= self._service.limits.body

    def room_for(self, path: str, head: int, rest: int) -> Room:
        """Memory for the body of a request to `path`: `head` bytes of JSON, and the `rest`. RequestError, and no
        memory, if there is none, or no runner soon."""
        served = self._service.repository.models.get(path.split("/", 4)[3])
        if served is not None:
            self.turns.check()
            self._service.check_queue(served)
        return self.rooms.take(head, rest, served)

    async def answer(self, exchange: Exchange) -> None:
        exchange.started = True
        try:
            try:
                answer = await self._answer(exchange)
            except RequestError as error:
                answer = Answer(error.status, [_error(str(error))], _of_error(error))
            except Exception as error:
                if isinstance(error, Disconnected):
                    return
                traceback.print_exc()  # our own bug
                answer = Answer(500, [_error("internal error")], [(b"content-type", JSON)])
            exchange.answer(answer)
            room = exchange.room
            if room is not None and exchange.whole and answer.status == 200:  # otherwise a run may still read it
                self.rooms.give(room)
        except asyncio.CancelledError:  # the client has gone, or the time for stopping is over
            pass
        finally:
            exchange.ended()

    async def _answer(self, exchange: Exchange) -> Answer:
        method = exchange.method
        parts = exchange.path.split("/", 8)[1:]
        if parts and parts[-1] == "":
            parts.pop()
        service = self._service
        name, version, rest = "", "", parts
        if parts[:2] == ["v2", "models"] and len(parts) >= 3:
            name, rest = parts[2], parts[3:]
            if len(rest) >= 2 and rest[0] == "versions":
                version, rest = rest[1], rest[2:]
            if rest in (["infer"], ["detect"]):
                with service.counted("http", None, exchange.client) as visit:
                    _only("POST", method)
                    served = service.repository.find(name, version)
                    boxes = boxes_asked(served, exchange) if rest == ["detect"] else None
                    return await self._infer(served, visit, exchange, boxes)
        if parts[:2] != ["v2", "health"]:  # health requests do not wait
            await self._others.come()
        if name:
            if rest == ["report"] and self._page is not None:
                _only("GET", method)
                return await self._reports.answer(service.repository.find(name, version))
            if rest in ([], ["ready"]):
                _only("GET", method)
                served = service.repository.find(name, version)
                if not rest:
                    return _json(200, metadata(served))
                ready = service.ready(served)
                return _json(200 if ready else 503, {"name": served.name, "ready": ready})
        elif exchange.path == "/" and self._page is not None:
            _only("GET", method)
            return self._page.answer()
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
            return Answer(200, [self._metrics()], [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")])
        raise RequestError("unknown", f"no such path: {quoted(exchange.path[:100])}")

    def _metrics(self) -> bytes:
        """They take milliseconds: frequent requests get the previous ones."""
        now = time.monotonic()
        self._spent = max(0.0, self._spent - (now - self._asked) * METRICS_SHARE)
        self._asked = now
        if self._spent < METRICS_SECONDS:
            self._text = self._service.metrics.text()
            self._spent += time.monotonic() - now
        return self._text

    async def _infer(
        self, served: ServedModel, visit: Visit, exchange: Exchange, boxes: Optional[Boxes]
    ) -> Answer:
        """`boxes`: the body is a photo, and the answer the boxes in it."""
        headers = exchange.headers
        length = _number(headers, b"content-length")
        if length is not None and length > self._service.limits.body:
            raise RequestError("too_large", f"a body of {length} bytes: at most {self._service.limits.body}")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise RequestError("encoding", "a compressed body is not taken")
        visit.enter(served)
        body, room = await exchange.body()
        long = len(body) >= ASIDE_FROM
        if boxes is not None:
            long, visit.sizes = False, []
        elif long:
            json_bytes = _number(headers, b"inference-header-content-length")
            long = json_bytes is None or json_bytes >= ASIDE_FROM
        head = None if room is None else room.head
        read = partial(read_request, served, headers, body, head, self.memory)
        if boxes is not None:
            read = partial(picture_request, served, body)
        visit.received(len(body) + (0 if head is None else len(head)))
        hold = self.memory.take(0, "")
        with Deadline(self._service.deadlines) as deadline:
            results, request = await self._service.infer(served, read, long, room, visit, hold, deadline)
            size = sum(map(_bytes_of, results))
            if boxes is not None:
                answer = await self._service.aside(partial(write_boxes, served, results, boxes, visit, hold, self.memory))
            elif size < ASIDE_FROM:
                answer = write_answer(served, request, results, size, self.memory)
            else:
                answer = await self._service.aside(partial(write_answer, served, request, results, size, self.memory))
        hold.give()
        visit.sent(answer.size)
        answer.headers.append((b"server-timing", visit.server_timing()))
        return answer


def _only(wanted: str, method: str) -> None:
    if method != wanted and not (method == "HEAD" and wanted == "GET"):
        raise RequestError("method", f"{quoted(method)} where {wanted} is meant")


def _number(headers: Headers, name: bytes) -> Optional[int]:
    """A number in a header; None if it is absent."""
    text = headers.get(name)
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise malformed(f"{name.decode()} is no number of bytes: {quoted(text.decode('latin-1'))}")
    return int(text)


def _json(status: int, value: object) -> Answer:
    return Answer(status, [json.dumps(value).encode()], [(b"content-type", JSON)])


def _error(line: str) -> bytes:
    return json.dumps({"error": line}).encode()


def _of_error(error: RequestError) -> List[Tuple[bytes, bytes]]:
    headers = [(b"content-type", JSON)]
    if error.kind in ("queue_full", "memory"):
        headers.append((b"retry-after", b"1"))
    if error.kind == "method":
        headers.append((b"allow", b"POST" if str(error).endswith("POST is meant") else b"GET, HEAD"))
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


def read_request(served: ServedModel, headers: Headers, body: Buffer, head: Optional[Buffer], memory: Memory) -> Request:
    """An inference request from JSON and the binary data whose position the header Inference-Header-Content-Length
    gives: the rest of `body`, or all of it if `head` has the JSON."""
    json_bytes = _number(headers, b"inference-header-content-length")
    if json_bytes == 0:
        return _raw_request(served, headers, body)
    if json_bytes is None:
        head, body = body, b""
    elif not head:
        if json_bytes > len(body):
            raise malformed(f"Inference-Header-Content-Length is {json_bytes}, the body has {len(body)} bytes")
        head, body = body[:json_bytes], memoryview(body)[json_bytes:]
    known = None
    if len(head) <= HEAD_BYTES:
        text = bytes(head)
        known = _known_heads.get(text)
    if known is None:
        known = _read_head(head, memory)
        if len(head) <= HEAD_BYTES and all(size is not None for _, size in known.inputs):
            _known_heads.keep(text, known)
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
    return Request(known.id, tensors, known.wanted, known.binary, known.timeout)


class _Head(NamedTuple):
    """The parsed JSON of a request."""

    id: str
    inputs: List[Tuple[Tensor, Optional[int]]]  # with its number of bytes after the JSON, if binary
    wanted: List[Wanted]
    binary: bool
    timeout: float


#: A client's requests mostly have the same head: caches the last ones without elements.
_known_heads: KnownHeads[_Head] = KnownHeads()


def _read_head(text: Buffer, memory: Memory) -> _Head:
    rest = json_text.cut_out(memoryview(text), memory)
    cut = rest.cut
    value = rest.loaded()
    if not isinstance(value, dict):
        raise malformed("the body is no JSON object")
    id = json_text.string(value.get("id", ""), cut)
    if not isinstance(id, str):
        raise malformed("'id' is no string")
    inputs = value.get("inputs")
    if not isinstance(inputs, list):
        raise malformed("'inputs' is no list")
    parameters = parameters_of(value.get("parameters"), "the request")
    binary = parameters.get("binary_data_output", False)
    if not isinstance(binary, bool):
        raise malformed("'binary_data_output' is true or false")
    tensors = [_tensor(entry, cut, memory) for entry in inputs]
    return _Head(id, tensors, _wanted(value.get("outputs"), cut, binary), binary, timeout_of(parameters))


def _tensor(entry: object, cut: List[json_text.Cut], memory: Memory) -> Tuple[Tensor, Optional[int]]:
    """An entry of "inputs", and the number of its bytes after the JSON."""
    name = json_text.string(entry.get("name"), cut) if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(name, str):
        raise malformed("an input has no 'name'")
    datatype = json_text.string(entry.get("datatype"), cut)
    if not isinstance(datatype, str):
        raise malformed(f"input {quoted(name)}: 'datatype' is no string")
    shape = checked_shape(entry.get("shape"), name)
    parameters = parameters_of(entry.get("parameters"), f"input {quoted(name)}")
    size = parameters.get("binary_data_size")
    data: Data
    if size is None:
        if "data" not in entry:
            raise malformed(f"input {quoted(name)}: 'data' is missing, and so is 'binary_data_size'")
        data = json_text.found(entry["data"], cut)
        if isinstance(data, list):
            data = [json_text.found(value, cut) for value in data] if datatype == "BYTES" else json_text.numbers(data, memory)
        elif not isinstance(data, json_text.Numbers):
            raise malformed(f"input {quoted(name)}: 'data' is no list")
        return Tensor(name, datatype, shape, data, parameters.get("content_type") == "base64"), None
    if "data" in entry:
        raise malformed(f"input {quoted(name)}: has both 'data' and 'binary_data_size'")
    if type(size) is not int or size < 0:
        shown = quoted(size) if isinstance(size, (int, float)) else type(size).__name__
        raise malformed(f"input {quoted(name)}: 'binary_data_size' is {shown}, which is no number of bytes")
    return Tensor(name, datatype, shape, b""), size


def _wanted(outputs: object, cut: List[json_text.Cut], binary: bool) -> List[Wanted]:
    if outputs is None:
        return []
    if not isinstance(outputs, list):
        raise malformed("'outputs' is no list")
    found: List[Wanted] = []
    for entry in outputs:
        if not isinstance(entry, dict):
            raise malformed("an output is no object")
        name = json_text.string(entry.get("name"), cut)
        parameters = parameters_of(entry.get("parameters"), f"output {quoted(name)}")
        found.append(wanted_of(name, parameters, binary))
    return found


def _raw_request(served: ServedModel, headers: Headers, body: Buffer) -> Request:
    """A body without JSON: the elements of the only input or, with Content-Type: image/..., one picture."""
    if headers.get(b"content-type", b"").startswith(b"image/"):
        return picture_request(served, body)
    if len(served.inputs) != 1:
        raise malformed(f"model '{served.name}' has {len(served.inputs)} inputs: they need a header of JSON")
    port, shape = served.inputs[0], served.input_shapes[0]
    fixed = math.prod(shape[1:] if served.batchable else shape) * served.dtypes[0].itemsize
    if not served.fixed or fixed == 0:
        raise malformed(f"model '{served.name}' takes more than one shape: its input needs a header of JSON")
    if served.batchable:
        shape = (len(body) // fixed, *shape[1:])
    return Request("", [Tensor(port.name, DATATYPES[port.dtype], shape, body)], [], True)


def picture_request(served: ServedModel, picture: Buffer) -> Request:
    return Request("", [Tensor(served.picture_name, "BYTES", (1,), [picture])], [])


def boxes_asked(served: ServedModel, exchange: Exchange) -> Boxes:
    """By the query of `detect`. RequestError for a model without boxes, and for anything unknown."""
    if served.card is None or not served.card.boxes:
        raise malformed(f"model '{served.name}' has no card that says how its outputs hold boxes")
    if _number(exchange.headers, b"inference-header-content-length"):
        raise malformed("the body of detect is a picture, and nothing else")
    asked = {"threshold": 0.25, "iou": 0.45, "top": 100.0}
    try:
        for name, text in urllib.parse.parse_qsl(exchange.query.decode("latin-1"), True, True, max_num_fields=len(asked)):
            if name not in asked:
                raise malformed(f"detect has no {quoted(name)}: {', '.join(asked)}")
            asked[name] = float(text)
    except ValueError as error:
        raise malformed(f"the query of detect: {error}") from None
    boxes = Boxes(asked["threshold"], asked["iou"], int(asked["top"]) if 1 <= asked["top"] <= MOST_BOXES else 0)
    if math.isnan(boxes.threshold) or not 0 <= boxes.iou <= 1 or not 0 < boxes.top == asked["top"]:
        raise malformed(f"detect: threshold is a number, iou one from 0 to 1, top a whole one from 1 to {MOST_BOXES}")
    return boxes


# ---- Answers ----


def write_boxes(
    served: ServedModel, results: List[Result], boxes: Boxes, visit: Visit, hold: Hold, memory: Memory
) -> Answer:
    """The boxes in the request's picture, with the names of `lenslet detect --json`."""
    outputs = [result.values for result in results if not isinstance(result.values, list)]
    elements = sum(output.size for output in outputs)
    hold.grow(8 * elements + DETECTION_BYTES * min(elements, 2 * MOST), "the boxes")  # as doubles
    assert visit.sizes is not None
    (size,), began = visit.sizes, time.monotonic()
    found = served.boxes(outputs, size, boxes)
    visit.stages["boxes"] = time.monotonic() - began
    length = sum(BOX_BYTES + CHARACTER_BYTES * len(box.label) for box in found)
    kept = memory.take(length, "the answer") if length > HELD_FROM else None
    listed = [{"class": box.index, "label": box.label, "score": box.score, "left": box.left, "top": box.top, "right": box.right,
               "bottom": box.bottom} for box in found]  # fmt: skip
    answer = {"model_name": served.name, "model_version": "1", "height": size[0], "width": size[1], "boxes": listed}
    text = _encoded(served, answer)
    if kept is not None:
        kept.shrink(len(text))
    return Answer(200, [text], [(b"content-type", JSON)], kept)


_encoder = json.JSONEncoder(allow_nan=False)


def _bytes_of(result: Result) -> int:
    """Its size in an answer, at most."""
    values = result.values
    if isinstance(values, list):
        return sum(6 * len(value) + 8 for value in values)
    return int(values.nbytes if result.binary else values.size * NUMBER_BYTES)


def write_answer(
    served: ServedModel, request: Request, results: List[Result], size: int, memory: Memory
) -> Answer:
    """JSON, followed by binary outputs if there are any. `size`: of its results, at most."""
    # A shorter answer is covered by the connection's own buffer.
    hold = memory.take(size + len(request.id), "the answer") if size + len(request.id) > HELD_FROM else None
    outputs: List[Dict[str, Any]] = []
    head: List[Buffer] = []
    binary: List[Buffer] = []
    for result in results:
        values = result.values
        output: Dict[str, Any] = {"name": result.name, "datatype": result.datatype, "shape": list(result.shape)}
        if result.binary:
            binary.append(result.raw())
            output["parameters"] = {"binary_data_size": len(binary[-1])}
        elif isinstance(values, list):
            output["data"] = [value.decode("utf-8", "replace") for value in values]
        elif values.size <= WRITTEN:
            output["data"] = values.ravel().tolist()
        else:  # the text before the numbers, and the numbers
            begin = _encoded(served, outputs)[1:-1]
            head += (begin, b", " if begin else b"", _encoded(served, output)[:-1], b', "data": [')
            head += (*_numbers(served, values), b"]}, ")
            outputs = []
            continue
        outputs.append(output)
    answer: Dict[str, Any] = {"model_name": served.name, "model_version": "1", "outputs": outputs}
    if request.id:
        answer["id"] = request.id
    if head:
        del answer["outputs"]
        end = _encoded(served, outputs)[1:-1]
        if not end:
            head[-1] = b"]}"
        head = [_encoded(served, answer)[:-1], b', "outputs": [', *head, end, b"]}"]
    else:
        head = [_encoded(served, answer)]
    length = sum(map(len, head))
    if hold is not None:
        hold.shrink(length + sum(map(len, binary)))
    if not binary:
        return Answer(200, head, [(b"content-type", JSON)], hold)
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"inference-header-content-length", str(length).encode()),
    ]
    return Answer(200, head + binary, headers, hold)


def _encoded(served: ServedModel, value: object) -> bytes:
    try:
        return _encoder.encode(value).encode()
    except ValueError:
        raise RequestError(
            "run", f"model '{served.name}': outputs that JSON cannot say (NaN, inf): ask for binary data"
        ) from None


def _numbers(served: ServedModel, values: Array) -> Iterator[bytes]:
    """In pieces, each of which keeps the GIL for a millisecond."""
    flat = values.ravel()
    for at in range(0, flat.size, WRITTEN):
        yield (b", " if at else b"") + _encoded(served, flat[at : at + WRITTEN].tolist())[1:-1]
