"""The command line of `lenslet serve`."""

from __future__ import annotations

import argparse
import math
import os
import pathlib
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .protocol import Shape

DESCRIPTION = """\
Serves models over the Open Inference Protocol (KServe v2), by HTTP and gRPC: what Triton's clients speak. A model is a
file, whose name without its ending the clients use, or NAME=FILE. Pictures are taken as they are, prepared by the
model's card. Prometheus is told at /metrics. docs/serving.md says more.
"""


#: Memory of a request, in multiples of its body: the body, parsed data and answers. TLS takes three eighths (tls.py).
BODIES, BODIES_WITH_TLS = 4, 6.4


class Tls(NamedTuple):
    """PEM files. `client_ca`: the authority that must sign client certificates."""

    certificate: pathlib.Path
    key: pathlib.Path
    client_ca: Optional[pathlib.Path]


class Options(NamedTuple):
    models: List[str]
    host: str
    http_port: Optional[int]  # None: no HTTP
    grpc_port: Optional[int]
    device: str
    precision: Optional[str]
    runners: Optional[int]  # None: chosen for the device
    threads: int
    preparers: int
    max_batch: int
    max_wait: float  # seconds
    max_requests: int
    max_connections: int
    max_body: int  # bytes
    max_message: int  # bytes
    max_memory: int  # bytes
    max_plan: int  # bytes
    max_rows: int
    max_queue: float  # seconds
    seconds: float
    run_seconds: float
    drain_seconds: float
    stop_seconds: float
    cards: Dict[str, pathlib.Path]  # by model; "": for the only one
    shapes: Dict[str, Dict[str, Shape]]
    access_log: str  # "": none
    page: bool
    tls: Optional[Tls]


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1 << 20:
        raise ValueError
    return value


def _port(text: str) -> Optional[int]:
    if text == "off":
        return None
    value = int(text)
    if not 0 <= value <= 65535:
        raise ValueError
    return value


def _time(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 86400:
        raise ValueError
    return value


for _kind, _words in ((_count, "count"), (_port, "port"), (_time, "number")):
    _kind.__name__ = _words  # argparse says "invalid count value"


def _parser() -> argparse.ArgumentParser:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="lenslet serve", description=DESCRIPTION, allow_abbrev=False)
    add = parser.add_argument
    add("models", nargs="+", metavar="MODEL", help="FILE.onnx, or NAME=FILE")
    add("--host", default="127.0.0.1", help="address to listen on (%(default)s: this machine alone)")
    add("--http-port", type=_port, default=8000, metavar="PORT", help="%(default)s; 0: a free one; off: no HTTP")
    add("--grpc-port", type=_port, default=8001, metavar="PORT", help="%(default)s; 0: a free one; off: no gRPC")
    add("--card", action="append", default=[], metavar="[NAME=]FILE", help="a model's card, in place of its own")
    add(
        "--shape", action="append", default=[], metavar="[NAME:]INPUT=1x3xHxW",
        help="fixes an input's free dimensions, so that requests are batched",
    )  # fmt: skip
    add("--device", default="auto", help='"cpu", "cuda", "cuda:1" or "auto" (%(default)s)')
    add("--precision", choices=("fp32", "tf32", "fp16", "bf16"), help="tf32 and fp16: on CUDA")
    add("--runners", type=_count, metavar="N", help=f"runs at once, of all models; a core each on the CPU ({cores})")
    add("--threads", type=_count, default=1, metavar="N", help="of a runner on the CPU (%(default)s)")
    add("--preparers", type=_count, default=cores, metavar="N", help="threads that decode pictures (%(default)s)")
    add("--max-batch", type=_count, default=8, metavar="N", help="images of a run (%(default)s); 1: no batches")
    add(
        "--max-wait-ms", type=_time, default=0, metavar="MS",
        help="what a request waits for others when a runner is free (%(default)s)",
    )  # fmt: skip
    add("--max-requests", type=_count, default=256, metavar="N", help="let in at once, else 429 (%(default)s)")
    add("--max-connections", type=_count, default=1024, metavar="N", help="of HTTP, idle ones (%(default)s)")
    add("--max-body-mib", type=_count, default=64, metavar="N", help="of a request, else 413 (%(default)s)")
    add(
        "--max-message-mib", type=_count, metavar="N",
        help="of a request over gRPC, whose library copies it in one go (32, or --max-body-mib where that is less)",
    )  # fmt: skip
    add(
        "--max-memory-mib", type=_count, metavar="N",
        help="of all requests at once, beside the models, else 503 (1024, or four bodies where that is more)",
    )  # fmt: skip
    add(
        "--max-plan-mib", type=_count, metavar="N",
        help="of a run for shapes that a request has, of a model that takes any, else 413 (half of --max-memory-mib)",
    )  # fmt: skip
    add("--max-rows", type=_count, default=64, metavar="N", help="images of a request (%(default)s)")
    add(
        "--max-queue-ms", type=_time, default=10, metavar="MS",
        help="waiting for a runner that is never refused; longer where others wait as long (%(default)s); 0: any",
    )  # fmt: skip
    add("--request-s", type=_time, default=30, metavar="S", help="for a request to come wholly (%(default)s)")
    add(
        "--timeout-s", type=_time, default=60, metavar="S",
        help="from a request's being there to its answer, else 504 (%(default)s); 0: none but the request's own",
    )  # fmt: skip
    add("--drain-s", type=_time, default=0, metavar="S", help="not ready, but open, before stopping (%(default)s)")
    add("--stop-s", type=_time, default=30, metavar="S", help="for requests to end when stopping (%(default)s)")
    add("--access-log", default="", metavar="FILE", help="a line of JSON for each inference request; -: stdout")
    add("--no-page", dest="page", action="store_false", help="nothing at /, where a page shows the models and tries a photo")
    add("--tls-cert", type=pathlib.Path, metavar="FILE", help="HTTPS and gRPC over TLS: the certificates, in PEM")
    add("--tls-key", type=pathlib.Path, metavar="FILE", help="the key of the first")
    add("--tls-client-ca", type=pathlib.Path, metavar="FILE", help="who signs the certificates that clients must have")
    return parser


def parsed(arguments: Sequence[str]) -> Options:
    """SystemExit(2) with a line on stderr for invalid arguments."""
    parser = _parser()
    given = parser.parse_args(list(arguments))
    if given.http_port is None and given.grpc_port is None:
        parser.error("neither HTTP nor gRPC")
    cards: Dict[str, pathlib.Path] = {}
    for text in given.card:
        name, equals, file = text.partition("=")
        cards[name if equals else ""] = pathlib.Path(file if equals else text)
    shapes: Dict[str, Dict[str, Shape]] = {}
    for text in given.shape:
        name, input, shape = _shape(parser, text)
        shapes.setdefault(name, {})[input] = shape
    if ("" in cards or "" in shapes) and len(given.models) > 1:
        parser.error("several models: --card NAME=FILE, --shape NAME:INPUT=SHAPE")
    if (given.max_message_mib or 0) > given.max_body_mib:
        parser.error("--max-message-mib: at most --max-body-mib")
    times = BODIES if given.tls_cert is None else BODIES_WITH_TLS
    least = math.ceil(times * given.max_body_mib)
    max_memory = given.max_memory_mib or max(1024, least)
    if max_memory < least:
        parser.error(f"--max-memory-mib {max_memory}: at least {times:g} times --max-body-mib, or no such body is served")
    max_plan = given.max_plan_mib or max(1, max_memory // 2)
    if (given.tls_cert is None) != (given.tls_key is None) or given.tls_client_ca and given.tls_cert is None:
        parser.error("--tls-cert and --tls-key belong together, and --tls-client-ca to them")
    tls = None if given.tls_cert is None else Tls(given.tls_cert, given.tls_key, given.tls_client_ca)
    own = {
        "max_wait": given.max_wait_ms / 1000,
        "max_body": given.max_body_mib << 20,
        "max_message": (given.max_message_mib or min(32, given.max_body_mib)) << 20,
        "max_memory": max_memory << 20,
        "max_plan": max_plan << 20,
        "max_queue": given.max_queue_ms / 1000,
        "seconds": given.request_s,
        "run_seconds": given.timeout_s,
        "drain_seconds": given.drain_s,
        "stop_seconds": given.stop_s,
        "cards": cards,
        "shapes": shapes,
        "tls": tls,
    }
    return Options(**own, **{name: value for name, value in vars(given).items() if name in Options._fields})


def _shape(parser: argparse.ArgumentParser, text: str) -> Tuple[str, str, Shape]:
    # An input's name may contain ':' and '=': the shape follows the last '='.
    head, equals, dims = text.rpartition("=")
    if not equals or not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8})*", dims):
        parser.error(f"--shape {text}: INPUT=1x3x224x224 is meant")
    shape = tuple(int(dim) for dim in dims.split("x"))
    name, colon, input = head.partition(":")
    return (name, input, shape) if colon else ("", head, shape)
