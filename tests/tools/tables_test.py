"""Printed tables of the verbs: their width, their columns, names that are shortened."""

import os
import re
import unittest
import unittest.mock

from command import FLOAT, Verb, at_terminal, initializer, model, node, noise, port
from tiny_model import field


class Tables(Verb):
    """None is wider than the terminal, whatever the names; JSON has them whole."""

    verbs = (("layers", "--seconds", "0"), ("bench", "--seconds", "0", "--per-layer"), ("inspect", "--memory-map"),
             ("verify", "--conv-algorithm", "all"), ("diff", "--against-conv-algorithm", "direct"))  # fmt: skip

    def setUp(self):
        super().setUp()
        weights = [initializer("w", [4, 3, 3, 3], noise(108, 5))]
        ports = [port("x", FLOAT, [1, 3, 9, 7])], [port(long := "\u4e2d\u202e" * 60 + "<script>", FLOAT, [1, 4, 7, 5])]
        self.long = self.write("long.onnx", model([node("Conv", ["x", "w"], long) + field(3, "a" * 500 + "z")], *ports, weights))

    def lines(self, text):
        """Those of tables: others are sentences."""
        heads = re.compile(r"^(layer|op|model|value|output|candidate| *offset) ")
        table = False
        for line in text.splitlines():
            table = bool(line) and (table or bool(heads.match(line)))
            if table and not re.match(r"not shown|\d+ (of|layers|outputs|values) ", line):
                yield line

    def test_a_newcomer_finds_what_matters_in_80_columns(self):
        text = self.passes("layers", self.long, "--seconds", "0", "--no-errors")
        head = next(line for line in text.splitlines() if line.startswith("layer "))
        for column in ("layer", "algorithm", "us", "%", "chosen"):
            self.assertIn(column, head.split())
        self.assertRegex(text, r"^long.onnx on cpu with \d threads: .* a run; (.*\n){1,2}(This machine probably had (.*\n)+?)?Slowest: \S+ \((Conv by|LayoutConvert)")
        for options in (), ("--layer", "z"):
            for line in self.passes("layers", self.long, "--seconds", "0", *options).splitlines()[1:]:
                if "`" not in line and "lenslet bench conv" not in line:  # commands stay whole, to be copied
                    self.assertLessEqual(sum(2 if "\u4e00" <= c <= "\u9fff" else 1 for c in line), 80, line)
        self.fails(2, "not expected: a b c", "inspect", self.long, "a", "b", "c")

    def test_the_slowest_come_first_and_few_at_a_terminal(self):
        convs = 40
        net = self.write("many.onnx", model(
            [node("Conv", [f"v{i}", "w"], f"v{i + 1}") + field(3, f"block{i}/conv") for i in range(convs)],
            [port("v0", FLOAT, [1, 4, 5, 5])], [port(f"v{convs}", FLOAT, [1, 4, 5, 5])], [initializer("w", [4, 4, 1, 1], noise(16, 3))]))  # fmt: skip
        count = convs + 2  # and the input's and the output's layout
        quick = ("layers", net, "--seconds", "0", "--no-errors", "--threads", "1")
        rows = lambda text: re.findall(r"^(?:block\d+/conv|v\d+:n\w+) .*", text, re.MULTILINE)
        us = lambda text: [float(row.split()[2]) for row in rows(text)]
        text = self.passes(*quick, "--columns", "layer,op,us")
        self.assertEqual(len(rows(text)), count)
        self.assertEqual(us(text), sorted(us(text), reverse=True))
        self.assertIn(f"\nSlowest: {rows(text)[0].split()[0]} (", text)
        self.assertEqual(len(rows(self.passes(*quick, "--top", "7"))), 7)
        status, text = at_terminal(*quick, COLUMNS="80")
        self.assertEqual((status, len(rows(text))), (0, 20))
        self.assertIn(f"\n{count - 20} others (--top 0) ", text)
        for options in ("--sort", "order"), ("--top", "0"):
            self.assertEqual(len(rows(at_terminal(*quick, *options, COLUMNS="80")[1])), count)
        in_order = [row.split()[0] for row in rows(self.passes(*quick, "--sort", "order"))]
        self.assertEqual(in_order[1:-1], [f"block{i}/conv" for i in range(convs)])

    def test_width(self):
        for columns in (None, "50", "120"):
            for verb, *options in self.verbs:
                with unittest.mock.patch.dict(os.environ, {"COLUMNS": columns} if columns else {}):
                    lines = list(self.lines(self.passes(verb, self.long, *options)))
                self.assertGreater(len(lines), 1, verb)
                for line in lines:
                    wide = sum(2 if "\u4e00" <= c <= "\u9fff" else 1 for c in line)
                    self.assertLessEqual(wide, int(columns or 80), (verb, line))
        wide = self.passes("layers", self.long, "--seconds", "0", "--wide")
        self.assertIn("a" * 500 + "z ", wide)
        self.assertNotIn("not shown", wide)
        status, text = at_terminal("layers", self.long, "--seconds", "0", COLUMNS="60", LC_ALL="C.UTF-8")
        self.assertEqual(status, 0)
        self.assertIn("aaa\u2026aaa", text)
        self.assertRegex(text, r"not shown \(--wide, --columns\):[\w,/%\s]*\bchosen_because\b")

    def test_columns(self):
        head = self.passes("layers", self.net, "--seconds", "0", "--columns", "us,layer,limit_us").splitlines()
        self.assertIn(["us", "layer", "limit", "us"], [line.split() for line in head])
        self.fails(2, "there is no column 'layr' (did you mean layer?); there are: layer, op,", "verify", self.net, "--columns", "layr")


if __name__ == "__main__":
    unittest.main()
