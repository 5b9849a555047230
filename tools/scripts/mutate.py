#!/usr/bin/env python3
"""Plants faults of one token into the sources and counts those that the tests do not notice.

    mutate.py [--count 400] [--seed 1] [--only FOLDER]... [--jobs 1] [--out results/mutants.jsonl]
    mutate.py --list [--count 400] [--seed 1] [--only FOLDER]...    what would be planted, and nothing is

A fault is another comparison, sign, bound, index or constant, or a statement that is left out. Faults are drawn at
random from the seed, out of the .cpp files of ops/, runtime/ and models/, or of --only, but for those that need a
device; the same seed draws the same, and a larger --count goes on where a smaller one ended. Each is built in a copy of
the working tree (build/mutants/JOB, with CUDA where nvcc is found; the first build of a copy is a whole one, with ccache
a short one), and the tests of the file's layer run until one fails, those of like names first, and of the others none
that takes more than a second. A fault that does not compile, or that gives the same object file, is no fault and is not
counted; one with which the tests take five times as long is noticed.

The file --out gets a line of JSON a fault; those that stand in it are not tried again while their line of source is
the same, survivors only with --again. Survivors are printed at the end: each wants a test, or a reason.
mutants_equivalent.json has those that nothing can notice, and why; they are not tried and are counted apart.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import queue
import random
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EQUIVALENT = pathlib.Path(__file__).with_name("mutants_equivalent.json")  # [file, line of source, old, new, reason]
DEVICE_ONLY = ("runtime/exec/cuda/",)  # none of these tests runs it
# Folder of the sources, and the executables that test them. The first that fails ends a fault.
LAYERS = (("ops", ("ops",)), ("runtime/graph", ("graph", "exec")), ("runtime/passes", ("graph", "exec")),
          ("runtime", ("exec", "c-api")), ("models", ("models",)))  # fmt: skip

# kind, what stands there, what is put there instead. clang-format sets spaces around binary operators and none around
# the brackets of templates.
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

# Up to an array's size where it is declared: a larger one is no fault.
DECLARES_ARRAY = r"\s*(?!(?:return|delete|throw|else|case)\b)(?:[\w:<>,*&]+ )+\*?\w+(?:\[[^\]]*\])*\[$"

Fault = collections.namedtuple("Fault", "file line column kind old new source")


def code_only(text):
    """The text with comments, strings and preprocessor lines blanked, every character where it was."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![\da-fA-F])\'(?:\\.|[^\'\\\n])+\'', blank, text, flags=re.S)
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
                if kind == "statement":  # all of it, strings too
                    old, put = lines[number], put
                yield Fault(name, number + 1, 0 if kind == "statement" else match.start(), kind, old.strip(), put.strip(),
                            lines[number].strip())  # fmt: skip


# What -Werror would make of a fault: it is to compile. An index outside ends a test, as in CI's sanitizer builds. The
# lines keep their numbers.
QUIET = "#define _GLIBCXX_ASSERTIONS\n" + "".join(f'#pragma GCC diagnostic ignored "-W{name}"\n' for name in (
    "parentheses", "unused-variable", "unused-but-set-variable", "unused-parameter", "unused-function", "unused-value",
    "sign-conversion", "conversion", "type-limits", "maybe-uninitialized", "return-type", "empty-body")) + "#line 1\n"  # fmt: skip


def with_fault(text, fault):
    lines = text.split("\n")
    line = lines[fault.line - 1]
    if fault.kind == "statement":
        lines[fault.line - 1] = line.replace(fault.old, fault.new)
    else:
        lines[fault.line - 1] = line[: fault.column] + fault.new + line[fault.column + len(fault.old) :]
    return "\n".join(lines)


def tests_of(name):
    return next(tests for folder, tests in LAYERS if name.startswith(folder + "/"))


def cases_near(name):
    """Patterns of the test cases that are likely to notice a fault: the words of the file's name and of its folder."""
    path = pathlib.PurePath(name)
    words = {path.parent.name, *path.stem.split("_")}
    words -= set("cpu cuda core op ops kernel kernels plan passes exec graph models to in".split())
    near = [f"*{word}*" for word in sorted(words)] + [path.parts[1] + "/*"] * (path.parts[0] == "ops")
    return near or ["*"]


class Copy:
    """The working tree once more, with a build folder of its own."""

    def __init__(self, folder, jobs):
        # As deep as a build folder of ROOT is: relative paths, and so what ccache knows, are the same.
        self.source, self.build, self.jobs, self.limits, self.slow = folder, folder / "build" / "mutant", jobs, {}, {}
        self.source.mkdir(parents=True, exist_ok=True)
        files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                               capture_output=True, check=True).stdout.decode().split("\0")  # fmt: skip
        kept = [name for name in files if (ROOT / name).is_file()]
        for name in kept:  # what is there already keeps its time, so that it is not compiled again
            to, contents = self.source / name, (ROOT / name).read_bytes()
            if not to.is_file() or to.read_bytes() != contents:
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(contents)
                to.chmod((ROOT / name).stat().st_mode)
        shared = next((at for at in (ROOT / "shared", ROOT.parent / "shared") if at.exists()), None)
        if shared and not (self.source / "shared").exists():
            (self.source / "shared").symlink_to(shared)
        if not (cutlass := self.source / "build" / "cutlass").exists() and (ROOT / "build" / "cutlass").exists():
            cutlass.parent.mkdir(exist_ok=True)
            cutlass.symlink_to(ROOT / "build" / "cutlass")
        self.environment = dict(os.environ, CCACHE_BASEDIR=str(self.source), CCACHE_NOHASHDIR="1", LENSLET_TEST_SEED="1")
        configure = ["cmake", "-S", str(self.source), "-B", str(self.build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                     f"-DLENSLET_CUDA={'ON' if shutil.which('nvcc') else 'OFF'}", "-DLENSLET_CUDA_QUICK=ON",
                     "-DLENSLET_CUDA_LINE_INFO=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]  # fmt: skip
        done = self.call(configure, 600)
        if done.returncode != 0:
            sys.exit("mutate.py: cannot configure: " + done.stdout[-2000:])

    def call(self, command, limit):
        try:
            return subprocess.run(command, cwd=self.source, env=self.environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=limit, text=True, errors="replace")  # fmt: skip
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", "")

    def compiled(self):
        commands = json.loads((self.build / "compile_commands.json").read_text())
        return {str(pathlib.Path(entry["file"]).relative_to(self.source)): self.build / re.search(r" -o (\S+)", entry["command"]).group(1) for entry in commands
                if pathlib.Path(entry["file"]).is_relative_to(self.source)}  # fmt: skip

    def make(self, targets):
        return self.call(["ninja", "-C", str(self.build), f"-j{self.jobs}", *targets], 7200)

    def run(self, name, *options):
        program = self.build / "tests" / name.replace("-", "_") / f"lenslet-test-{name}"
        return self.call([str(program), "--abort-after=1", "--no-intro=1", *options], self.limits.get(name, 3600))

    def test(self, name, near):
        """The cases of an executable until one fails, those near the fault first. Others that take more than a second are
        left out: what they would notice counts as a survivor."""
        done = self.run(name, f"--test-case={','.join(near)}")
        if done.returncode == 0:
            done = self.run(name, f"--test-case-exclude={','.join(near + self.slow[name])}")
        return done

    def prepare(self, tests):
        done = self.make([f"lenslet-test-{name}" for name in tests])
        if done.returncode != 0:
            sys.exit("mutate.py: the sources do not build: " + done.stdout[-2000:])
        for name in tests:
            begin = time.monotonic()
            if (done := self.run(name, "--duration=1")).returncode != 0:
                sys.exit(f"mutate.py: the tests of {name} fail without a fault: {done.stdout[-2000:]}")
            self.slow[name] = re.findall(r"^[1-9][\d.]* s: (.+)$", done.stdout, re.M)
            self.limits[name] = 5 * (time.monotonic() - begin) + 10

    def judge(self, fault):
        """(verdict, words) of one fault."""
        path, object_file = self.source / fault.file, self.compiled()[fault.file]
        text, digest = path.read_text(), lambda: hashlib.sha256(object_file.read_bytes()).digest()
        tests = tests_of(fault.file)
        relative = str(object_file.relative_to(self.build))
        path.write_text(QUIET + text)
        try:
            if self.make([relative]).returncode != 0:
                return "broken", "the file does not compile without the fault"
            before = digest()
            path.write_text(QUIET + with_fault(text, fault))
            if self.make([relative]).returncode != 0:
                return "invalid", "does not compile"
            if digest() == before:
                return "invalid", "the same object file"
            if self.make([f"lenslet-test-{name}" for name in tests]).returncode != 0:
                return "invalid", "does not link"
            for name in tests:
                done = self.test(name, cases_near(fault.file))
                if done.returncode != 0:
                    case = re.findall(r"TEST CASE:\s*(.+)", done.stdout)  # those before the last only say something
                    words = "takes too long" if done.returncode == 124 else case[-1] if case else "ends early"
                    return "killed", f"{name}: {words}"
            return "survived", ""
        finally:
            path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=400, help="faults that compile (default 400)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", metavar="FOLDER", help="sources below it; may be given more than once")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree that work side by side")
    parser.add_argument("--list", action="store_true", help="print the faults that are drawn, with the lines they stand in, and stop")
    parser.add_argument("--again", action="store_true", help="try again those that survived")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "mutants.jsonl")
    arguments = parser.parse_args()
    only = [folder.strip("/") + "/" for folder in arguments.only or ("ops", "runtime", "models")]

    each = max(1, (os.cpu_count() or 1) // arguments.jobs)
    copies = [Copy(ROOT / "build" / "mutants" / str(job), each) for job in range(arguments.jobs)]
    names = sorted(name for name in copies[0].compiled()
                   if name.endswith(".cpp") and not name.startswith(DEVICE_ONLY) and any(name.startswith(folder) for folder in only)
                   and any(name.startswith(folder + "/") for folder, _ in LAYERS))  # fmt: skip
    drawn = [fault for name in names for fault in faults_of(name, (ROOT / name).read_text())]
    print(f"{len(drawn)} places for faults in {len(names)} files", flush=True)
    random.Random(arguments.seed).shuffle(drawn)
    if arguments.list:
        for fault in drawn[: arguments.count]:
            print(f"{fault.file}:{fault.line}:{fault.column + 1} {fault.kind}: {fault.old} -> {fault.new}\n    {fault.source}")
        return
    for copy in copies:
        copy.prepare(sorted({test for name in names for test in tests_of(name)}))

    known, lines = {}, arguments.out.read_text().splitlines() if arguments.out.exists() else []
    for row in map(json.loads, lines):
        known[Fault(*(row[field] for field in Fault._fields))] = row
    equivalent = {tuple(row[:4]): row[4] for row in json.loads(EQUIVALENT.read_text())}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    free, lock, counts, survivors = queue.Queue(), threading.Lock(), collections.Counter(), []
    for copy in copies:
        free.put(copy)

    def work(fault):
        with lock:
            if sum(counts[each] for each in ("killed", "survived", "equivalent", "running")) >= arguments.count:
                return
            counts["running"] += 1
        row = known.get(fault)
        if reason := equivalent.get((fault.file, fault.source, fault.old, fault.new)):
            row = {"verdict": "equivalent", "words": reason}
        elif row is None or (arguments.again and row["verdict"] == "survived"):
            copy = free.get()
            verdict, words = copy.judge(fault)
            free.put(copy)
            row = {**fault._asdict(), "verdict": verdict, "words": words, "seed": arguments.seed}
            with lock, arguments.out.open("a") as out:
                out.write(json.dumps(row) + "\n")
        with lock:
            counts["running"] -= 1
            counts[row["verdict"]] += 1
            if row["verdict"] == "survived":
                survivors.append(fault)
            print(f"{row['verdict']:9} {fault.file}:{fault.line} {fault.kind}: {fault.old} -> {fault.new}  {row['words']}",
                  flush=True)  # fmt: skip

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(work, drawn))
    tried = counts["killed"] + counts["survived"]
    print(f"\nseed {arguments.seed}: {counts['killed']} of {tried} faults noticed ({100 * counts['killed'] / max(1, tried):.0f} %), "
          f"{counts['equivalent']} more can be noticed by nothing, {counts['invalid']} were none")  # fmt: skip
    for fault in sorted(survivors):
        print(f"{fault.file}:{fault.line}: {fault.kind}: {fault.old} -> {fault.new}\n    {fault.source}")


if __name__ == "__main__":
    main()
