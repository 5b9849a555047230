"""A page of `lenslet report`, read as a browser reads it."""

import html.parser
import json

from command import Verb


class Page(html.parser.HTMLParser):
    """The data of a page, its elements with data-* attributes, and its text."""

    def __init__(self, text):
        super().__init__()
        self.data, self.figures, self.ms, self.text, self.scripts, self.inside = "", {}, [], [], 0, None
        self.feed(text)
        self.data = json.loads(self.data)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.inside = tag
        if tag == "script":
            self.scripts += 1
            self.inside = attributes.get("id", tag)
        if attributes.get("id", "").startswith("figure-"):
            self.figures[attributes["id"].partition("-")[2]] = float(attributes["data-value"])
        if "data-ms" in attributes:
            self.ms.append(float(attributes["data-ms"]))

    def handle_data(self, data):
        if self.inside == "data":
            self.data += data
        elif self.inside not in ("script", "style"):
            self.text.append(data)

    def handle_endtag(self, tag):
        self.inside = None


class ReportVerb(Verb):
    def page_of(self, *arguments):
        page = self.folder / "report.html"
        self.passes("report", *arguments, "--threads", 1, "--seconds", 0, "--warmup", 1, "-o", page)
        return page

    def stored(self, document, name="stored.json"):
        return self.write(name, json.dumps(document).encode())
