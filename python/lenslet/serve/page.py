"""The page at "/" (page.html): the models, and a place to try a photo. It has no parts elsewhere, and its browser may ask
nobody but this server. And the report of each model's plan."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import pathlib
import re
import tempfile
from typing import Any, Dict, List, Tuple

import lenslet

from .http_exchange import Answer
from .memory import Hold, Memory
from .protocol import RequestError
from .repository import ServedModel

#: Seconds until a report that failed is tried again.
AGAIN_SECONDS = 60


class Page:
    def __init__(self) -> None:
        """OSError where the package lacks its file."""
        self._text = (pathlib.Path(__file__).parent / "page.html").read_bytes()
        policy = (
            f"default-src 'none'; script-src {self._allowed(b'script')}; style-src {self._allowed(b'style')}; connect-src 'self'; "
            "img-src blob: data:; media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self._headers: List[Tuple[bytes, bytes]] = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cache-control", b"no-cache"),
        ]

    def _allowed(self, tag: bytes) -> str:
        """The hash of the only element `tag` (Content Security Policy Level 3, section 8.3)."""
        (text,) = re.findall(b"<%s>(.*?)</%s>" % (tag, tag), self._text, re.DOTALL)
        return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"

    def answer(self) -> Answer:
        return Answer(200, [self._text], list(self._headers))


class Reports:
    """Pages of `lenslet report` from the plans of served models. They measure nothing, so they do not disturb runs: each is
    made once, one at a time, by a process of its own. Kept ones are a part of the bound on memory, and go when that is
    short."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._made: Dict[str, asyncio.Task[Tuple[bytes, Hold]]] = {}
        memory.when_short.append(self._forget)
        self._turn = asyncio.Lock()

    async def answer(self, served: ServedModel) -> Answer:
        task = self._made.get(served.name)
        if task is None:
            task = self._made[served.name] = asyncio.ensure_future(self._make(served))
        try:
            page, _ = await asyncio.shield(task)  # who goes away does not stop it: the next one would start another
        except (lenslet.Error, OSError) as error:
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._made.pop, served.name, None)
            raise RequestError("run", f"model '{served.name}' has no report: {error}") from None
        except RequestError:  # there is no memory for it now
            self._made.pop(served.name, None)
            raise
        return Answer(200, [page], list(_REPORT_HEADERS))

    async def _make(self, served: ServedModel) -> Tuple[bytes, Hold]:
        async with self._turn:
            page = await asyncio.get_running_loop().run_in_executor(None, report_of, served)
        return page, self._memory.take(len(page), "the report")

    def _forget(self) -> bool:
        """Thread-safe."""
        for name, task in list(self._made.items()):
            if task.done():
                self._made.pop(name, None)
        return False


#: `sandbox`: names in a model cannot reach the server, whatever they make of the page.
_REPORT_HEADERS: List[Tuple[bytes, bytes]] = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", b"sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
     b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]  # fmt: skip


def report_of(served: ServedModel) -> bytes:
    """lenslet.Error, OSError."""
    batch = served.sizes[0]
    plan = served.model.plan(**served.how(batch))
    layers: List[Dict[str, Any]] = [
        {**step, "algorithm": step.get("algorithm", ""), "ms": step["estimated_us"] / 1000, "shape": _shape(step),
         "gflops": step["flops"] / step["estimated_us"] / 1000 if step["estimated_us"] > 0 else 0}
        for step in plan.rows
        if not step["no_op"]
    ]
    run = {
        "model": served.name,
        **{key: plan[key] for key in ("device", "precision", "threads")},
        "batch": batch,
        "estimated": True,
        "layers": layers,
        "inspect": {"plan": plan},
    }
    with tempfile.TemporaryDirectory(prefix="lenslet-serve-") as folder:
        data, page = pathlib.Path(folder) / "plan.json", pathlib.Path(folder) / "report.html"
        data.write_text(json.dumps(run), encoding="utf-8")
        lenslet.report(data, page)
        return page.read_bytes()


def _shape(step: Dict[str, Any]) -> str:
    return f"[{','.join(map(str, step['outputs'][0]['shape']))}]" if step["outputs"] else ""
