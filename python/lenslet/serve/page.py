"""The page at "/" (page.html): the models, and a place to try a photo. It has no parts elsewhere, and its browser may ask
nobody but this server."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import re
from typing import List, Tuple

from .http_exchange import Answer


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
