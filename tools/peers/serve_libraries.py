"""serve_libraries.py NAME: a server of one HTTP or gRPC library on a free port, which it prints. Its handler reads an
inference request as `lenslet serve` does and answers with ten numbers. bench_serve.py libraries measures them.

pip install uvicorn httptools uvloop h11 starlette granian aiohttp grpcio
"""

import asyncio
import concurrent.futures
import json
import pathlib
import socket
import sys
import threading
import time

import numpy as np
import uvloop

HEADER = "inference-header-content-length"
LARGEST = 64 << 20


def answered(header_bytes, body):
    """(header bytes, body) of the answer."""
    json.loads(body[:header_bytes])
    x = np.frombuffer(memoryview(body)[header_bytes:], np.float32)
    y = np.full(10, x[0])
    output = {"name": "y", "datatype": "FP32", "shape": [1, 10], "parameters": {"binary_data_size": 40}}
    head = json.dumps({"model_name": "net", "model_version": "1", "outputs": [output]}).encode()
    return len(head), head + y.tobytes()


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message["body"])
        more = message.get("more_body", False)
    header_bytes, body = answered(int(dict(scope["headers"])[HEADER.encode()]), b"".join(parts))
    headers = [(HEADER.encode(), str(header_bytes).encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def say_later(port):
    """Prints the port once the server listens on it."""

    def say():
        with socket.socket() as tried:
            while tried.connect_ex(("127.0.0.1", port)) != 0:
                time.sleep(0.05)
        print(port, flush=True)

    threading.Thread(target=say, daemon=True).start()


def of_uvicorn(app, http, loop):
    import uvicorn

    port = free_port()
    say_later(port)
    uvicorn.run(app, port=port, http=http, loop=loop, ws="none", log_level="critical", access_log=False)


def of_starlette():
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def infer(request):
        header_bytes, body = answered(int(request.headers[HEADER]), await request.body())
        return Response(body, headers={HEADER: str(header_bytes)})

    of_uvicorn(Starlette(routes=[Route("/v2/models/{name}/infer", infer, methods=["POST"])]), "httptools", "uvloop")


def of_granian():
    from granian.constants import Interfaces
    from granian.server.embed import Server

    async def rsgi(scope, protocol):
        header_bytes, body = answered(int(scope.headers[HEADER]), await protocol())
        protocol.response_bytes(200, [(HEADER, str(header_bytes))], body)

    async def serve():
        port = free_port()
        say_later(port)
        await Server(rsgi, port=port, interface=Interfaces.RSGI, log_enabled=False).serve()

    asyncio.run(serve())


def of_aiohttp():
    from aiohttp import web

    async def infer(request):
        header_bytes, body = answered(int(request.headers[HEADER]), await request.read())
        return web.Response(body=body, headers={HEADER: str(header_bytes)})

    app = web.Application(client_max_size=LARGEST)
    app.router.add_post("/v2/models/{name}/infer", infer)
    port = free_port()
    say_later(port)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


def of_grpc(kind):
    import grpc

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
    from lenslet.serve.messages import SERVICE, message_classes

    messages = message_classes()

    def answer(request):
        x = np.frombuffer(request.raw_input_contents[0], np.float32)
        made = messages["ModelInferResponse"](model_name="net", model_version="1")
        made.outputs.add(name="y", datatype="FP32", shape=[1, 10])
        made.raw_output_contents.append(np.full(10, x[0]).tobytes())
        return made

    def added(server, method):
        handler = grpc.unary_unary_rpc_method_handler(
            method,
            request_deserializer=messages["ModelInferRequest"].FromString,
            response_serializer=messages["ModelInferResponse"].SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"ModelInfer": handler}),))
        return server.add_insecure_port("127.0.0.1:0")

    options = [("grpc.max_receive_message_length", LARGEST)]

    async def serve():
        async def method(request, context):
            return answer(request)

        server = grpc.aio.server(options=options)
        port = added(server, method)
        await server.start()
        print(port, flush=True)
        await server.wait_for_termination()

    if kind == "aio":
        asyncio.run(serve())
    else:
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=options)
        port = added(server, lambda request, context: answer(request))
        server.start()
        print(port, flush=True)
        server.wait_for_termination()


LIBRARIES = {
    "uvicorn": lambda: of_uvicorn(asgi, "httptools", "uvloop"),
    "uvicorn-h11": lambda: of_uvicorn(asgi, "h11", "asyncio"),
    "starlette": of_starlette,
    "granian": of_granian,
    "aiohttp": of_aiohttp,
    "grpc.aio": lambda: of_grpc("aio"),
    "grpc-threads": lambda: of_grpc("threads"),
}

if __name__ == "__main__":
    if sys.argv[1] != "uvicorn-h11":
        uvloop.install()
    LIBRARIES[sys.argv[1]]()
