"""TLS by Python's ssl for HTTP and by gRPC's own. All PEM files are read when the server starts.

Its buffers cannot be counted. So a part of the bound is reserved for them, which limits the number of connections.
"""

from __future__ import annotations

import ssl
from typing import Any, Optional

import grpc  # type: ignore[import-untyped, import-not-found, unused-ignore]

from .memory import Memory
from .options import Tls

#: Bytes of a connection's buffers (measured, with a margin), and their part of the bound.
HTTP_BYTES, HTTP_PART = 768 << 10, 4
GRPC_BYTES, GRPC_PART = 128 << 10, 8


def connections(tls: Optional[Tls], memory: Memory, each: int, part: int, most: int) -> int:
    """At most `most` connections, or as many as the memory allows, which is reserved permanently."""
    if tls is None:
        return most
    most = max(1, min(most, memory.most // part // each))
    memory.take(most * each, "TLS").keep()
    return most


def http_context(tls: Optional[Tls]) -> Optional[ssl.SSLContext]:
    """For asyncio's create_server(ssl=...). ValueError for an invalid certificate or key, OSError."""
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except ssl.SSLError as error:
        raise ValueError(f"--tls-cert {tls.certificate}, --tls-key {tls.key}: {error.reason or error}") from None
    return context


def grpc_credentials(tls: Tls) -> Any:
    """For add_secure_port(). Files that http_context() accepts work."""
    pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
    clients = None if tls.client_ca is None else tls.client_ca.read_bytes()
    return grpc.ssl_server_credentials([pair], clients, clients is not None)


def _no_password() -> str:
    raise ValueError("--tls-key: it has a password: a server has nobody to ask for it")
