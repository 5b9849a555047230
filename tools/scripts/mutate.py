#!/usr/bin/env python3
"""Plants faults of one token into the sources and counts those that the tests do not notice.

    mutate.py [--count 400] [--seed 1] [--only FOLDER]... [--jobs 1] [--out results/mutants.jsonl]
    mutate.py --list [--count 400] [--seed 1] [--only FOLDER]...    what would be planted, and nothing is

A fault is another comparison, sign, bound, index or constant, or a statement that is left out. Faults are drawn at
random from the seed, out of the .cpp files of ops/, runtime/ and models/, or of --only, except those that need a
device; the same seed draws the same, and a larger --count goes on where a smaller one ended. One build without CUDA has
all of them, in a copy of the working tree (build/mutants/one), and the variable LENSLET_MUTANT switches one on. Each
test case of up to four seconds runs once to see which faults it reaches. Then the cases that reach a fault run with it
until one fails, those of like names first. A fault that takes five times as long is noticed. A fault in a constant
expression does not compile so: it is not judged, and counted apart.

The file --out gets a line of JSON a fault; those that stand in it are not tried again while their line of source is
the same, survivors only with --again. Survivors are printed at the end: each wants a test, or a reason.
mutants_equivalent.json has those that nothing can notice, and why; they are not tried and are counted apart.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
EQUIVALENT = pathlib.Path(__file__).with_name("mutants_equivalent.json")  # [file, line of source, old, new, reason]
DEVICE_ONLY = ("runtime/exec/cuda/",)  # not run by these tests
# Folders of sources, and the executables that test them. The first failure decides a fault.
LAYERS = (("ops", ("ops",)), ("runtime/graph", ("graph", "exec")), ("runtime/passes", ("graph", "exec")),
          ("runtime", ("exec", "c-api")), ("models", ("models",)))  # fmt: skip

FILES = [name for name in subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
         capture_output=True, text=True).stdout.split("\0") if (ROOT / name).is_file()]  # fmt: skip

# kind, the original, the replacement. clang-format puts spaces around binary operators, not around templates' brackets.
SWAPS = (
    ("comparison", r"(?<= )<(?= )", "<="), ("comparison", r"(?<= )<=(?= )", "<"), ("comparison", r"(?<= )>(?= )", ">="),
    ("comparison", r"(?<= )>=(?= )", ">"), ("comparison", r"(?<= )==(?= )", "!="), ("comparison", r"(?<= )!=(?= )", "=="),
    ("comparison", r"(?<= )&&(?= )", "||"), ("comparison", r"(?<= )\|\|(?= )", "&&"), ("comparison", r"(?<=[( ])!(?=[\w(])", ""),
    ("sign", r"(?<= )\+(?= )", "-"), ("sign", r"(?<= )-(?= )", "+"), ("sign", r"(?<= )\*(?= )", "/"), ("sign", r"(?<= )/(?= )", "*"),
    ("sign", r"(?<= )\+=(?= )", "-="), ("sign", r"(?<= )-=(?= )", "+="), ("sign", r"(?<=[(,=?:] )-(?=[\w(])", ""),
    ("bound", r"\bstd::min\b", "std::max"), ("bound", r"\bstd::max\b", "std::min"), ("bound", r"\bfront\(\)", "back()"),
    ("bound", r"\bback\(\)", "front()"), ("bound", r"(?<=[\w)] )%(?= )", "/"),
    ("index", r"(?<=\w\[)\d+(?=\])", lambda text: str(int(text) + 1)), ("index", r"(?<=\w\[)[a-z]\w*(?=\])", lambda text: text + " + 1"),
    ("constant", r"(?<![\w.\[])\d+(?![\w.\]])", lambda text: str(int(text) + 1)), ("constant", r"\btrue\b", "false"),
    ("constant", r"\bfalse\b", "true"),
    ("statement", r"(?<![\w ])  +(?!return|using|throw|delete|const|auto|static|case|goto)(?:continue|break|[a-z_][\w.:>\[\]()*-]*"
                  r"(?: [-+*/|&]?= .+|\(.*\)));$", lambda text: re.match(" *", text).group() + ";"),
)  # fmt: skip

# Up to the size in an array's declaration: a larger array is no fault.
DECLARES_ARRAY = r"\s*(?!(?:return|delete|throw|else|case)\b)(?:[\w:<>,*&]+ )+\*?\w+(?:\[[^\]]*\])*\[$"

Fault = collections.namedtuple("Fault", "file line column kind old new source")


COMMENT = r"//[^\n]*|/\*.*?\*/"
STRING = r'"(?:\\.|[^"\\\n])*"|(?<![\da-fA-F])\'(?:\\.|[^\'\\\n])+\''


def code_only(text, string=" "):
    """The text with comments, strings and preprocessor lines blanked, with all positions unchanged."""
    blank = lambda match: re.sub(r"[^\n]", string if match.group()[0] in "\"'" else " ", match.group())
    text = re.sub(COMMENT + "|" + STRING, blank, text, flags=re.S)
    return re.sub(r"^[ \t]*(?:#|static_assert|template|namespace|using)(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def faults_of(name, text):
    lines, ended = text.split("\n"), True
    for number, line in enumerate(code_only(text).split("\n")):
        begins, ended = ended, line.rstrip()[-1:] in ("", ";", "{", "}", ":")
        for kind, pattern, new in SWAPS:
            if kind == "statement" and not begins:
                continue
            for match in re.finditer(pattern, line):
                if kind == "index" and re.match(DECLARES_ARRAY, line[: match.start()]):
                    continue
                old = match.group()
                put = new(old) if callable(new) else new
                if kind == "statement":  # everything, including strings
                    old, put = lines[number], put
                yield Fault(name, number + 1, 0 if kind == "statement" else match.start(), kind, old.strip(), put.strip(),
                            lines[number].strip())  # fmt: skip


# Silences -Werror for faults, which must compile. An index outside and a false assert end a test, as in CI's sanitizer
# builds. Line numbers stay the same.
QUIET = """#define _GLIBCXX_ASSERTIONS
#undef NDEBUG
extern int lenslet_mutant;
extern unsigned char lenslet_reached[];
#define LENSLET_FAULT(n) (::lenslet_reached[n] = 1, ::lenslet_mutant == (n))
""" + "".join(f'#pragma GCC diagnostic ignored "-W{name}"\n' for name in (
    "parentheses", "unused-variable", "unused-but-set-variable", "unused-parameter", "unused-function", "unused-value",
    "sign-conversion", "conversion", "type-limits", "maybe-uninitialized", "return-type", "empty-body", "narrowing",
    "stringop-overflow", "div-by-zero", "sign-compare", "extra", "array-bounds", "float-conversion")) + "#line 1\n"  # fmt: skip
SWITCH = """#include <cstdio>
#include <cstdlib>
#include <ctime>
int lenslet_mutant = -1;
unsigned char lenslet_reached[1 << 16];
__attribute__((constructor(101))) static void choose() {
  if (const char* number = std::getenv("LENSLET_MUTANT")) lenslet_mutant = std::atoi(number);
}
__attribute__((destructor(101))) static void tell() {
  const char* name = std::getenv("LENSLET_REACHED");
  if (std::FILE* file = name ? std::fopen(name, "wb") : nullptr) {
    std::fprintf(file, "%ld ", static_cast<long>(std::clock() / (CLOCKS_PER_SEC / 1000)));
    std::fwrite(lenslet_reached, 1, sizeof lenslet_reached, file);
  }
}
"""
TOKEN = re.compile(r"""(?P<stop>(?<=\s)(?:[-+*/%&|^]|<<|>>)?=(?=\s)|[,;?]|(?<!:):(?!:)|\b(?:return|case|throw|else|do)\b)
    |(?P<other>\w+|->|::|(?<=\s)[<>=]+(?=\s))|(?P<open>[(\[{]|(?<=\w)<(?=\S))|(?P<close>[)\]}]|(?<=\S)>(?!=))|\S""", re.X)


class Source:
    """A file's tokens, and its text with all faults. clang-format's spaces tell operators from templates' brackets."""

    def __init__(self, text):
        self.text, self.tokens, self.partner, opened = text, list(TOKEN.finditer(code_only(text, "0"))), {}, []
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        for i, token in enumerate(self.tokens):
            if token.lastgroup == "open":
                opened.append(i)
            elif token.lastgroup == "close":
                while opened and token[0] != ">" and self.tokens[opened[-1]][0] == "<":
                    opened.pop()
                if opened and (token[0] == ">") == (self.tokens[opened[-1]][0] == "<"):
                    self.partner[i] = opened.pop()
                    self.partner[self.partner[i]] = i

    def region(self, fault):
        """(begin, end) of the expression or statement that contains the fault."""
        begin = self.line_starts[fault.line - 1] + fault.column
        if fault.kind == "statement":
            begin = self.text.index(fault.old, begin)
        if fault.kind in ("statement", "constant", "index"):
            return begin, begin + len(fault.old)
        first = last = next(i for i, token in enumerate(self.tokens) if token.start() == begin)
        while first > 0 and self.tokens[first - 1].lastgroup not in ("open", "stop"):
            token, before = self.tokens[first - 1], self.partner.get(first - 1, first - 1)
            if token.lastgroup == "close" and (before == first - 1 or self.tokens[before - 1][0] in ("if", "for", "while", "switch")
                                               or token[0] == "}" and "\n" in self.text[token.end() : self.tokens[first].start()]):  # fmt: skip
                break
            first = before
        while self.tokens[last + 1].lastgroup not in ("close", "stop") or (fault.old in ("+=", "-=") and self.tokens[last + 1][0] in "?:"):
            last = self.partner.get(last + 1, last + 1)
        return self.tokens[first].start(), self.tokens[last].end()

    def with_faults(self, faults):
        """The text with a list of (number, fault), all switched off."""
        regions = sorted(((*self.region(fault), number, fault) for number, fault in faults), key=lambda row: (row[0], -row[1]))

        def render(begin, end, inside):
            text = ""
            while inside:
                first, last, number, fault = inside[0]
                now = render(first, last, [row for row in inside[1:] if row[0] < last])
                inside = [row for row in inside[1:] if row[0] >= last]
                text, begin, at = text + self.text[begin:first], last, self.line_starts[fault.line - 1] + fault.column
                if fault.kind == "statement":
                    text += f"{{ if (!LENSLET_FAULT({number})) {{ {now} }} }}"
                    continue
                other = self.text[first:at] + fault.new + self.text[at + len(fault.old) : last]
                other = re.sub(COMMENT + "|\n|" + STRING, lambda part: part[0] if part[0][0] in "\"'" else " ", other, flags=re.S)
                kind = "bool" if fault.old == "!" else ""  # otherwise the negated value might become an optional
                text += f"(LENSLET_FAULT({number}) ? {kind}({other}) : ({now}))"
            return text + self.text[begin:end]

        lines = render(0, len(self.text), regions).split("\n")
        for _, fault in faults:  # a variable is not a constant expression
            lines[fault.line - 1] = re.sub(r"(?<!if )\bconstexpr (?=[\w:<>, ]+ \w+(?:\[\w*\])? = )", "const ", lines[fault.line - 1])
        return QUIET + "\n".join(lines)


def tests_of(name):
    return next(tests for folder, tests in LAYERS if name.startswith(folder + "/"))


def cases_near(name):
    """Patterns of test cases that probably notice a fault: the words of the file's and folder's names."""
    path = pathlib.PurePath(name)
    words = {path.parent.name, *path.stem.split("_")}
    words -= set("cpu cuda core op ops kernel kernels plan passes exec graph models to in".split())
    near = [f"*{word}*" for word in sorted(words)] + [path.parts[1] + "/*"] * (path.parts[0] == "ops")
    return near or ["*"]


class Build:
    """A copy of the working tree with all faults."""

    def __init__(self, folder, jobs):
        # As deep as a build folder of ROOT, so that relative paths, and ccache's keys, are the same.
        self.source, self.build, self.jobs = folder, folder / "build" / "mutant", jobs
        self.source.mkdir(parents=True, exist_ok=True)
        shared = next((at for at in (ROOT / "shared", ROOT.parent / "shared") if at.exists()), None)
        if shared and not (self.source / "shared").exists():
            (self.source / "shared").symlink_to(shared)
        self.environment = dict(os.environ, CCACHE_BASEDIR=str(self.source), CCACHE_NOHASHDIR="1", LENSLET_TEST_SEED="1",
                                CMAKE_CXX_COMPILER_LAUNCHER=shutil.which("ccache") or "")  # fmt: skip

    def fill(self, mutated):
        """Unchanged files keep their times, so that they are not compiled again."""
        for name in {"base/mutant.cpp", *FILES}:
            to, contents = self.source / name, mutated[name].encode() if name in mutated else (ROOT / name).read_bytes()
            if not to.is_file() or to.read_bytes() != contents:
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(contents)
                to.chmod(0o755)

    def call(self, command, limit, **environment):
        try:
            return subprocess.run(command, cwd=self.source, env=self.environment | environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=limit, text=True, errors="replace")  # fmt: skip
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", "")

    def make(self, faults, tests):
        """Builds with those of {number: fault} that compile; returns the numbers of the others."""
        dropped, sources = set(), {fault.file: Source((ROOT / fault.file).read_text()) for fault in faults.values()}
        kept = {name: {number: fault for number, fault in faults.items() if fault.file == name} for name in sources}
        while True:
            self.fill({"base/mutant.cpp": SWITCH} | {name: sources[name].with_faults(inside.items()) for name, inside in kept.items()})
            self.call(["cmake", "-S", self.source, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DLENSLET_CUDA=OFF"], 600)
            done = self.call(["ninja", "-k0", "-C", self.build, f"-j{self.jobs}", *(f"lenslet-test-{name}" for name in tests)], 9999)
            if done.returncode == 0:
                return dropped
            before = len(dropped)
            for unit in re.split(r"^(?=FAILED: )", done.stdout, flags=re.M)[1:]:
                at = {(name, int(line)) for name, line in re.findall(r"([\w./-]+):(\d+)[:,]", unit)}
                for name, inside in kept.items():
                    lines = {line for found, line in at if found.endswith("/" + name) or found == name}
                    wrong = [number for number, fault in inside.items() if fault.line in lines]
                    if lines and not wrong:
                        wrong = sorted(inside, key=lambda number: min(abs(inside[number].line - line) for line in lines))[:1]
                    dropped.update(wrong)
                    kept[name] = {number: fault for number, fault in inside.items() if number not in dropped}
            print(f"{len(dropped)} faults do not compile so", flush=True)
            if len(dropped) == before:
                sys.exit("mutate.py: the sources do not build: " + done.stdout[-3000:])

    def run(self, name, cases, seconds, **environment):
        limits = ["prlimit", f"--cpu={int(seconds) + 1}", f"--as={12 << 30}", "--core=0"]
        program = self.build / "tests" / name.replace("-", "_") / f"lenslet-test-{name}"
        which = "--test-case=" + ",".join(case.replace("\\", "\\\\").replace(",", "\\,") for case in cases)
        return self.call([*limits, program, "--abort-after=1", "--no-intro=1", which if cases else "--list-test-cases"], 10 * seconds,
                         **environment)  # fmt: skip

    def cover(self, tests):
        """{(executable, case): (seconds, faults that it reaches)}."""
        def one(key):
            file = self.build / f"reached-{abs(hash(key))}"
            done = self.run(key[0], [key[1]], 4, LENSLET_REACHED=str(file))
            if done.returncode == 0:
                milliseconds, reached = file.read_bytes().split(b" ", 1)
                self.reached[key] = 0.001 * int(milliseconds), {match.start() for match in re.finditer(b"\1", reached)}
            elif done.returncode not in (124, -9, -24, 137, 152):
                print(f"not used, because it fails without a fault: {key[1]}: {done.stdout[-500:]}")
            file.unlink(missing_ok=True)

        self.reached = {}
        keys = [(name, case) for name in tests for case in self.run(name, [], 9).stdout.split("\n")
                if case and not case.startswith(("[doctest]", "==="))]  # fmt: skip
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(one, keys))

    def judge(self, number, fault):
        """(verdict, text) of one fault."""
        near = cases_near(fault.file)
        cases = sorted((not any(fnmatch.fnmatch(case.lower(), word) for word in near), seconds, name, case)
                       for (name, case), (seconds, reached) in self.reached.items() if number in reached)  # fmt: skip
        if not cases:
            return "survived", "no case reaches it"
        most = 0.5
        while cases:
            taken, total, most = [], 0, 2 * most  # few at first, then more
            while cases and len(taken) < 200 and total < most and cases[0][2] == (taken or cases)[0][2]:
                total += cases[0][1]
                taken.append(cases.pop(0))
            done = self.run(taken[0][2], [case for *_, case in taken], 5 * total + 1, LENSLET_MUTANT=str(number))
            if done.returncode != 0:
                case = re.findall(r"TEST CASE:\s*(.+)", done.stdout)  # those before the last only print messages
                words = "takes too long" if done.returncode in (124, -9, -24, 137, 152) else case[-1] if case else "ends early"
                return "killed", f"{taken[0][2]}: {words}"
        return "survived", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=400, help="places (default 400)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", metavar="FOLDER", help="sources below it; may be given more than once")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--list", action="store_true", help="print the faults that are drawn, with the lines they stand in, and stop")
    parser.add_argument("--again", action="store_true", help="try again those that survived")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "mutants.jsonl")
    arguments = parser.parse_args()
    only = [folder.strip("/") + "/" for folder in arguments.only or ("ops", "runtime", "models")]

    names = sorted(name for name in FILES
                   if name.endswith(".cpp") and not name.startswith(DEVICE_ONLY) and any(name.startswith(folder) for folder in only)
                   and any(name.startswith(folder + "/") for folder, _ in LAYERS))  # fmt: skip
    drawn = [fault for name in names for fault in faults_of(name, (ROOT / name).read_text())]
    print(f"{len(drawn)} places for faults in {len(names)} files", flush=True)
    random.Random(arguments.seed).shuffle(drawn)
    drawn = drawn[: arguments.count]
    if arguments.list:
        for fault in drawn:
            print(f"{fault.file}:{fault.line}:{fault.column + 1} {fault.kind}: {fault.old} -> {fault.new}\n    {fault.source}")
        return

    known, lines = {}, arguments.out.read_text().splitlines() if arguments.out.exists() else []
    for row in map(json.loads, lines):
        known[Fault(*(row[field] for field in Fault._fields))] = row
    equivalent = {tuple(row[:4]): row[4] for row in json.loads(EQUIVALENT.read_text())}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    build = Build(ROOT / "build" / "mutants" / "one", arguments.jobs)
    tests = sorted({test for name in names for test in tests_of(name)})
    invalid = {number for number, fault in enumerate(drawn) if known.get(fault, {}).get("verdict") == "invalid"}
    invalid |= build.make({number: fault for number, fault in enumerate(drawn) if number not in invalid}, tests)
    build.cover(tests)
    print(f"{len(build.reached)} cases", flush=True)
    counts, survivors = collections.Counter(), []

    def work(numbered):
        number, fault = numbered
        row = known.get(fault)
        if reason := equivalent.get((fault.file, fault.source, fault.old, fault.new)):
            row = {"verdict": "equivalent", "words": reason}
        elif row is None or (arguments.again and row["verdict"] == "survived"):
            verdict, words = ("invalid", "does not compile so") if number in invalid else build.judge(number, fault)
            row = {**fault._asdict(), "verdict": verdict, "words": words, "seed": arguments.seed}
            with arguments.out.open("a") as out:
                out.write(json.dumps(row) + "\n")
        return row

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for fault, row in zip(drawn, pool.map(work, enumerate(drawn))):
            counts[row["verdict"]] += 1
            if row["verdict"] == "survived":
                survivors.append((*fault, row["words"]))
            print(f"{row['verdict']:9} {fault.file}:{fault.line} {fault.kind}: {fault.old} -> {fault.new}  {row['words']}",
                  flush=True)  # fmt: skip
    tried = counts["killed"] + counts["survived"]
    print(f"\nseed {arguments.seed}: {counts['killed']} of {tried} faults noticed ({100 * counts['killed'] / max(1, tried):.1f} %), "
          f"{counts['equivalent']} more can be noticed by nothing, {counts['invalid']} were not judged")  # fmt: skip
    for file, line, _, kind, old, new, source, words in sorted(survivors):
        print(f"{file}:{line}: {kind}: {old} -> {new}  {words}\n    {source}")


if __name__ == "__main__":
    main()
