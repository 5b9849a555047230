"""gRPC's server on asyncio, made robust against invalid paths. gRPC decodes the path of each call to an unregistered
method; if it is not UTF-8, gRPC's own loop stops, and all calls with it. So all methods are registered here, and other
calls are answered without looking at the path. Each method then has its own queue, which isolates floods.
"""

from __future__ import annotations

import asyncio
from typing import Any, Dict, List, Optional, Set, Tuple

import grpc.aio  # type: ignore[import-untyped, import-not-found, unused-ignore]
from grpc._cython import cygrpc  # type: ignore[import-untyped, import-not-found, unused-ignore]

#: The internals of gRPC used here. If they differ, gRPC's server is used unchanged.
_INSIDES = ("_make_request_call_future", "_request_call", "_request_registered_call", "add_registered_method_handlers")
_KNOWN = all(hasattr(cygrpc.AioServer, name) for name in _INSIDES) and all(
    hasattr(cygrpc, name) for name in ("_MethodResolver", "_handle_rpc", "_schedule_rpc_coro")
)


class _Accepting(cygrpc.AioServer):  # type: ignore[misc, unused-ignore]
    def __init__(self, loop: asyncio.AbstractEventLoop, *others: Any) -> None:
        super().__init__(loop, *others)
        self._own_loop = loop
        self._handlers: Dict[str, Any] = {}
        self._resolver = cygrpc._MethodResolver([], self._handlers) if _KNOWN else None
        self._calls: Set[Any] = set()  # a loop has no strong references to its tasks

    def add_registered_method_handlers(self, handlers: Dict[str, Any]) -> None:
        super().add_registered_method_handlers(handlers)
        self._handlers.update(handlers)

    def _make_request_call_future(self, method: Optional[bytes]) -> Any:
        """gRPC awaits the next call here; this server takes calls itself. The future ends with the server."""
        return self._own_loop.create_task(self._accept(method))

    async def _accept(self, method: Optional[bytes]) -> None:
        loop, name = self._own_loop, "" if method is None else method.decode()
        while True:
            state = await (self._request_call() if method is None else self._request_registered_call(method))
            handled = cygrpc._handle_rpc(name, self._resolver, (), state, loop, False)
            task = loop.create_task(cygrpc._schedule_rpc_coro(handled, state, loop, name))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)


def server(services: Dict[str, Dict[str, Any]], options: List[Tuple[str, Any]]) -> Any:
    """A grpc.aio.Server without a port yet. `services`: their methods' handlers."""
    usual = cygrpc.AioServer
    if _KNOWN:
        cygrpc.AioServer = _Accepting
    try:
        made = grpc.aio.server(options=options)
    finally:
        cygrpc.AioServer = usual
    for service, handlers in services.items():
        if _KNOWN:
            made.add_registered_method_handlers(service, handlers)
        else:
            made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    return made
