"""Rules of CONTRIBUTING.md for kernels ("Rules for kernels") that no run can check: a kernel that does not wait for the
previous one has a race, which gives the right numbers nearly always and which racecheck does not see."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WAITS = "wait_for_previous"
# Never launched, or launched by a plain <<<>>>.
NO_NETWORK = {"probe", "lone_probe"}


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def functions(text, pattern):
    """(name, body) of each function whose beginning, up to its name, matches the pattern."""
    for head in re.finditer(pattern + r"(\w+)\s*\([^;{]*\)[^;{(]*\{", text):
        at, depth = head.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        yield head[1], text[head.end() : at - 1]


class KernelRules(unittest.TestCase):
    def test_every_kernel_waits_for_the_one_before_it(self):
        texts = {path: without_comments(path.read_text()) for folder in ("base", "ops", "runtime")
                 for path in sorted((ROOT / folder).rglob("*.cu*"))}  # fmt: skip
        helpers = {name for text in texts.values() for name, body in functions(text, r"__device__[^;{()]*?") if WAITS in body}
        calls = re.compile(rf"\b({'|'.join(sorted(helpers | {WAITS}))})\s*[<(]")
        found = 0
        for path, text in texts.items():
            for name, body in functions(text, r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?"):
                found += 1
                if name not in NO_NETWORK:
                    self.assertRegex(body, calls, f"{name} in {path.relative_to(ROOT)} never calls {WAITS}()")
        self.assertEqual(found, sum(text.count("__global__") for text in texts.values()))
        self.assertGreater(found, 100)


if __name__ == "__main__":
    unittest.main()
