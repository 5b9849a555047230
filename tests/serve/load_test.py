"""`lenslet serve` under load, with many clients that err."""

import concurrent.futures
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import threading
import unittest

from harness import Served, answer_of, binary_body, entry, ppm, skip_without
from malformed_test import MALFORMED


@skip_without()
class Load(Served, unittest.TestCase):
    """Some thousand requests, a third of which err in all ways at once: none is lost, and the metrics add up."""

    names = ("sums", "lookup", "rgb")
    requests = 3000

    def test_nothing_is_lost(self):
        counts = {}
        lock = threading.Lock()

        def client(seed):
            draw = random.Random(seed)
            connection = None
            for number in range(self.requests // 12):
                kind = draw.choice(("good",) * 8 + ("picture", "malformed", "failing", "leaves"))
                index = draw.randrange(4)
                model = "rgb" if kind == "picture" else "lookup"
                if kind == "picture":
                    picture = ppm(9, 8, 7)
                    data = len(picture).to_bytes(4, "little") + picture
                    headers, body = binary_body([("image", "BYTES", [1], data)])
                elif kind == "malformed":
                    headers, body = {}, draw.choice(MALFORMED[:12])[-1]
                else:
                    value = 50 if kind == "failing" else index
                    headers, body = (
                        {},
                        json.dumps({"id": str(number), "inputs": [entry("x", "INT64", [1], [value])]}).encode(),
                    )
                head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
                head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                if connection is None:
                    connection = socket.create_connection((self.server.host, self.server.http_port), 30)
                connection.sendall(head.encode() + b"\r\n" + body)
                if kind == "leaves":
                    connection.close()
                    connection = None
                    outcome = "left"
                else:
                    status, answer = answer_of(connection)
                    wanted = {"malformed": 400, "failing": 400}.get(kind, 200)
                    self.assertEqual(status, wanted, answer)
                    if kind == "good":
                        found = json.loads(answer)
                        self.assertEqual(
                            (found["id"], found["outputs"][0]["data"]), (str(number), [10.0 * (index + 1)])
                        )
                    outcome = str(status)
                with lock:
                    counts[outcome] = counts.get(outcome, 0) + 1
            if connection is not None:
                connection.close()

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            for done in [pool.submit(client, seed) for seed in range(12)]:
                done.result(60)
        self.assertEqual(sum(counts.values()), self.requests)

        def of(name, **labels):
            wanted = [f'{key}="{value}"' for key, value in labels.items()]
            return sum(value for key, value in metrics.items()
                       if re.match(rf"{name}($|{{)", key) and all(each in key for each in wanted))  # fmt: skip

        metrics = {}

        def all_counted():
            metrics.clear()
            metrics.update(self.server.metrics())
            return of("lenslet_requests_total") == self.requests and of("lenslet_requests_in_house") == 0

        self.eventually(all_counted)
        left = of("lenslet_failures_total", kind="disconnected")
        self.assertEqual(of("lenslet_failures_total", kind="malformed"), counts["400"])
        # Who left before its answer is counted so; who was answered before it was seen to leave, as done.
        self.assertLessEqual(left, counts["left"])
        self.assertEqual(of("lenslet_request_seconds_count") + left, counts["200"] + counts["left"])
        self.still_answers()


@skip_without()
class Soak(unittest.TestCase):
    """tools/peers/bench_serve.py soak, which counts the same from outside."""

    def test_tool_finds_nothing_lost(self):
        tool = pathlib.Path(__file__).resolve().parents[2] / "tools" / "peers" / "bench_serve.py"
        done = subprocess.run([sys.executable, tool, "soak", "--requests", "1000", "--connections", "8"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
