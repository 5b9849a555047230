"""Everything that the documents name exists, and their commands run.

A block indented by four spaces has a command on each line; if a line begins with "$ ", only that is one, and the rest
is its output. Each is run here, or matched by one of `not_run`, which gives the reason; programs of the build, presets,
targets, scripts, options, paths and tests that are named anywhere must exist.
"""

import csv
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import unittest

from command import COMMAND, FLOAT, ROOT, Verb, model, node, options_by_verb, port, tensor_pb, write_npy

# (beginning of the command, why it is not run). Everything else about it is checked nevertheless.
not_run = (
    (r"tools/(quickstart|test)[.]sh\b|[.]ci/(run|deep)$", "installs packages and builds, for minutes"),
    (r"cmake --(preset|build|install) |ctest --preset ", "builds, for minutes"),
    (r"cmake -G Ninja -S samples/embed |/tmp/embed/embed |export PKG_CONFIG_PATH=|g[+][+] ", "tests/install does it"),
    (r"cpack ", "tests/install does it"),
    (r"tools/scripts/gpu_check[.]sh|build/cuda/", "needs a GPU"),
    (r"lenslet .*--device cuda\b", "needs a GPU"),
    (r"tools/peers/differential[.]py .*--pack |mkdir permuted$|tar xf permuted|ls -d permuted/|cat permuted/", "draws for an hour"),
    (r"lenslet bench conv --drawn .*--odd ", "times hundreds of convolutions, for minutes"),
    (r"tools/peers/(bench_peers|op_speed)[.]py ", "needs ONNX Runtime, and takes minutes"),
    (r"tools/peers/bench_(cpu_peers|start)[.]py ", "installs GB of peers, and takes a quarter of an hour"),
    (r"tools/peers/bench_decode[.]py ", "needs the peers"),
    (r"tools/peers/quantized_accuracy[.]py ", "needs the peers"),
    (r"tools/peers/bench_photos[.]py ", "needs the peers"),
    (r"tools/peers/bench_(gpu|sparse)_peers[.]py ", "needs a GPU and PyTorch"),
    (r"python3 -m venv |venv/bin/", "compiles, for minutes; tests/python runs the package"),
    (r"python samples/(ray|spark)_batch[.]py ", "needs Ray or Spark: tests/python/ray_test.py and spark_test.py do it"),
    (r"tools/peers/bench_scale_out[.]py ", "needs Ray and Spark, and takes a quarter of an hour"),
    (r"tools/scripts/build_wheel[.]sh", "compiles, for minutes: tests/python/wheel_test.sh does it"),
    (r"lenslet serve |curl |pip install ", "serves until it is stopped; tests/serve does it"),
    (r"models/convert/spconv_onnx[.]py ", "needs NumPy and onnx: spconv_onnx_test.py does it"),
    (r"conv_tables[.]py |tools/scripts/refit[.]py ", "takes what was measured on a GPU"),
)
# Beginnings of blocks that are not commands.
no_commands = ("base  <-  ops",)
# Replacements. The rest of a command runs as written.
stands_for = {"~/.cache/lenslet/photos": "FOLDER", "CASE_FOLDER...": "CASE_FOLDER", "MODEL": "model.onnx", "N": "2"}
# Options of other programs.
foreign_options = {
    "cmake": {"--preset", "--build", "--target", "--install", "--prefix", "--list-presets"},
    "cpack": {"--config"},
    "c_api_test.py": {"--update"},
    "curl": {"--data-binary"},
    "nvcc": {"--compress-mode"},
    "doctest": {"--list-test-cases", "--test-case"},
    "ld": {"--wrap"},
    "pkg-config": {"--cflags", "--libs", "--variable", "--static"},
}

sources = (".h", ".cuh", ".cpp", ".cu", ".cmake", ".sh", ".py", ".md", ".csv", ".svg", ".txt")
documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "samples" / "README.md",
             ROOT / "tests" / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]  # fmt: skip


def tree():
    """Every file and folder of ours, relative to the root."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not re.match(r"build|__pycache__$|[.](git|cache)$", name)
                      and (name != "results" or folder != str(ROOT))]  # fmt: skip
        for name in folders + files:
            yield os.path.relpath(os.path.join(folder, name), ROOT)


def blocks(text):
    """The blocks indented by four spaces, each with the number of its first line."""
    block, blank, fenced = [], True, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fenced ^= line.startswith("```")
        if re.match("    " if block else "    (?! )", line) and not fenced and (block or blank):
            block.append((number, line[4:]))
        elif line.strip() or number > text.count("\n"):
            if block:
                yield block
            block = []
        blank = not line.strip()


def without_comment(line):
    return re.sub(r"(^|\s+)#\s.*", "", line)


def commands():
    """(where, command) for each part of a line between `&&`; a backslash at the end continues a line."""
    for document in documents:
        for block in blocks(document.read_text(encoding="utf-8")):
            if block[0][1].startswith(no_commands):
                continue
            prompts = [(number, line[2:]) for number, line in block if line.startswith("$ ")]
            whole = ""
            for number, line in prompts or block:
                whole += without_comment(line).strip()
                if whole.endswith("\\"):
                    whole = whole[:-1]
                    continue
                for part in filter(None, whole.split(" && ")):
                    yield f"{document.relative_to(ROOT)}:{number}", part
                whole = ""


def spans():
    """(where, text) of everything in `...`, also across the end of a line, outside of ``` blocks."""
    for document in documents:
        text = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), document.read_text(encoding="utf-8"),
                      flags=re.MULTILINE | re.DOTALL)  # fmt: skip
        for found in re.finditer(r"`([^`]+)`", text):
            number = text.count("\n", 0, found.start()) + 1
            yield f"{document.relative_to(ROOT)}:{number}", " ".join(found[1].split())


def of_lenslet(words):
    """The verb in ["lenslet", "bench", "conv", ...] as named by options_by_verb(), or None."""
    if not words or os.path.basename(words[0]) != "lenslet":
        return None
    names = " ".join(words[1:3])
    known = options_by_verb_once()
    return next((name for name in (names, words[1] if len(words) > 1 else "") if name in known), "")


def python_verbs():
    """Verbs that the Python package adds to the command."""
    return set(re.findall(r'"(\w+)": "lenslet[.]', (ROOT / "python/lenslet/__main__.py").read_text(encoding="utf-8")))


def options_by_verb_once(cache={}):
    if not cache:
        cache.update(options_by_verb())
    return cache


class Documents(Verb):
    def setUp(self):
        super().setUp()
        self.files = set(tree())
        self.wrong = []

    def tearDown(self):
        self.assertEqual(self.wrong, [], "\n" + "\n".join(self.wrong))

    def must(self, holds, where, text):
        if not holds:
            self.wrong.append(f"{where}: {text}")

    @unittest.skipIf("LENSLET_TEST_REDUCED" in os.environ, "the commands run in the other builds; this one takes a minute")
    def test_every_command_runs_or_says_why_not(self):
        for name in ("resnet50", "efficientnet-lite0", "mobilenetv2"):  # a photo's main colour
            subprocess.run([sys.executable, ROOT / "tests" / "install" / "tiny_model.py", self.folder], check=True)
            os.rename(self.folder / "rgb.onnx", self.folder / f"{name}.onnx")
        os.rename(self.folder / "voxels.onnx", self.folder / "second.onnx")  # makes a dense map from points, as well
        shutil.copytree(self.folder, photos := self.folder / "FOLDER")
        for file in photos.iterdir():
            if file.suffix != ".ppm":
                file.unlink()
        relu = model([node("Relu", ["x"], "y")], [port("x", FLOAT, [3])], [port("y", FLOAT, [3])])
        self.write("CASE_FOLDER/relu/model.onnx", relu)
        self.write("CASE_FOLDER/relu/test_data_set_0/input_0.pb", tensor_pb("x", [3], [-1, 2, -3]))
        self.write("CASE_FOLDER/relu/test_data_set_0/output_0.pb", tensor_pb("y", [3], [0, 2, 0]))
        os.rename(self.net, self.folder / "model.onnx")  # conv_net()
        shutil.copy(self.folder / "resnet50.onnx", self.net)
        write_npy(self.folder / "x.npy", (1, 3, 12, 10), [0.5] * 360)
        ports = [port("x", FLOAT, ["N", 3, "H", "W"])], [port("y", FLOAT, ["N", 3, "H", "W"])]
        self.write("denoise.onnx", model([node("Relu", ["x"], "y")], *ports))
        for name in ("photo", "grace_hopper"):
            shutil.copy(self.folder / "red.ppm", self.folder / f"{name}.jpg")
        ports = [port("input", FLOAT, [1, 3, 240, 320])], [port("scores", FLOAT, [1, 1, 2]), port("boxes", FLOAT, [1, 1, 4]), port("y", FLOAT, [1, 3, 240, 320])]  # fmt: skip
        given = [tensor_pb("s", [1, 1, 2], [0.1, 0.9]), tensor_pb("b", [1, 1, 4], [0.1, 0.1, 0.9, 0.9])]
        nodes = [node("Relu", ["input"], "y"), node("Identity", ["s"], "scores"), node("Identity", ["b"], "boxes")]
        self.write("ultraface-rfb-320.onnx", model(nodes, *ports, given))

        used = set()
        cache = self.folder / "cache" / "lenslet"  # the default model
        cache.mkdir(parents=True)
        shutil.copy(self.folder / "resnet50.onnx", cache / "efficientnet-lite0.onnx")
        for where, command in commands():
            rules = [rule for rule, _ in not_run if re.match(rule, command)]
            used.update(rules)
            words = shlex.split(command)
            if rules:
                continue
            if os.path.basename(words[0]) != "lenslet":
                self.must(False, where, f"neither run nor in not_run: {command}")
                continue
            words = [COMMAND, *(stands_for.get(word, word) for word in words[1:])]
            if words[1] == "bench":
                words += ["--seconds", "0.01"]  # otherwise it takes minutes
            done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=120,
                                  env={**os.environ, "LENSLET_DEVICE": "cpu", "LENSLET_CACHE": str(cache)})  # fmt: skip
            self.must(done.returncode == 0 and (done.stdout or re.search(" (-o|--output) ", command)), where, f"{command}: {done.returncode}, {done.stderr}")
        for rule, _ in not_run:
            self.must(rule in used, "not_run", f"{rule}: no document has such a command")

    def test_commands_stand_in_indented_blocks(self):
        for document in documents:
            for language in re.findall(r"^```(.+)$", document.read_text(encoding="utf-8"), re.MULTILINE):
                self.must(language in ("c", "cmake", "cpp", "json", "python", "text"), document.name, f"a block of {language}")

    def test_options_exist(self):
        known = options_by_verb_once()
        scripts = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in self.files
                            if file.startswith("tools/") and file.endswith((".sh", ".py", "cudnn/main.cpp")))  # fmt: skip
        package = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "python/lenslet").rglob("*.py"))
        foreign = set().union(*foreign_options.values()) | set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", scripts))
        foreign |= set(re.findall(r'"(--[a-z][a-z-]+)"', package))
        for where, text in [*commands(), *spans()]:
            words = text.split()
            verb = of_lenslet(words)
            options = re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)
            if verb is None:
                for option in options:
                    self.must(option in foreign or any(option in names for names in known.values()), where,
                              f"nothing has the option {option}")  # fmt: skip
                continue
            if len(words) > 1 and words[1] in python_verbs():
                for option in options:
                    self.must(f'"{option}"' in package, where, f"lenslet {words[1]} has no {option}")
                continue
            if len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]):
                self.must(verb.split()[:1] == words[1:2], where, f"no verb: {text}")
            for option in options:
                self.must(option in known[verb] | known[""], where, f"lenslet {verb} has no {option}")

    def exists(self, name, document):
        """As a path from the root, from the document, from include/, or as the end of a path."""
        name = name.rstrip("/")
        beside = os.path.normpath(os.path.join(os.path.dirname(document), name))
        if {name, beside, f"include/{name}"} & self.files:
            return True
        if re.search(r"[*]", name):
            return any(fnmatch.fnmatch(file, pattern) for file in self.files for pattern in (name, beside))
        return any(file.endswith("/" + name) for file in self.files)

    def test_paths_and_tests_exist(self):
        folders = {file.split("/")[0] for file in self.files if "/" in file}
        text = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in self.files
                         if file.startswith("tests/") and file.endswith((".cpp", ".txt")))  # fmt: skip
        tests = set(re.findall(r'TEST_CASE\("([^"]+)"', text)) | set(re.findall(r"add_test\(NAME ([^\s]+)", text))
        tests |= {f"install/{name}" for name in re.findall(r"\w+", re.search(r"set\(parts ([^)]*)", text)[1])}
        tests |= {f"command/{name}" for file in (ROOT / "tests/tools").glob("*_test.py")
                  for name in re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)}  # fmt: skip
        groups = {name.rsplit("/", 1)[0] for name in tests} | {"cuda/conv"}  # one is registered for each algorithm
        links = []
        for document in documents:
            for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
                if not re.match(r"https?:", target):
                    links.append((str(document.relative_to(ROOT)) + ":", target))
        for where, name in [*spans(), *links]:
            document = where.split(":")[0]
            if re.search(r"[A-Z]{3,}(?!\w*[.](md|txt))|[\s(){}<>=,;]", name) or name.startswith(("~", "/", "-", "http")):
                continue  # a pattern, or code
            if name in sources or name.startswith(("build/", "results/", "share/", "shared/")):
                continue  # a file extension, or not of the repository
            path = "/" in name and (name.split("/")[0] in folders or name.endswith("/")) or name.endswith(sources)
            if path:
                self.must(self.exists(name, document), where, f"no such path: {name}")
            elif re.fullmatch(r"[a-z_]+(/[\w*]+)+", name) and not self.exists(name, document):
                known = name in tests or any(name in (group, f"{group}/*") for group in groups)
                self.must(known, where, f"neither a path nor a test: {name}")
        for where, text in commands():
            for script in re.findall(r"^((?:tools|[.]ci)/\S+|conv_tables[.]py)", text):
                self.must(self.exists(script, "README.md"), where, f"no such script: {script}")
            for pattern in re.findall(r"(?:-R|--test-case=)\s*'([^']+)'", text):
                prefix = pattern.strip("^*$").rstrip("/")
                found = prefix.startswith("cuda/conv/") or any(name.startswith(prefix) for name in tests)
                self.must(found, where, f"no test is called {pattern}")

    def test_every_cuda_kernel_of_convolutions_is_in_the_table(self):
        rows = (ROOT / "ops/conv/rows.cpp").read_text(encoding="utf-8")
        table = re.findall(r"^[|] `.*", (ROOT / "docs/cuda-kernels.md").read_text(encoding="utf-8"), re.MULTILINE)
        named = {name for row in table for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
        kernels = set(re.findall(r"&cuda::(?:conv_(?:transpose_)?)?(?:separable_conv|(\w+))\(\)\}", rows)) - {""} | {"separable"}
        self.assertGreater(len(kernels), 25)
        for name in sorted(kernels - named):
            self.must(False, "docs/cuda-kernels.md", f"the table lacks {name}")

    def test_presets_and_targets_exist(self):
        presets = json.loads((ROOT / "CMakePresets.json").read_text())
        names = {kind: {preset["name"] for preset in presets[f"{kind}Presets"]} for kind in ("configure", "build", "test")}
        lists = "\n".join((ROOT / file).read_text() for file in self.files if file.endswith(("CMakeLists.txt", ".cmake")))
        targets = set(re.findall(r"add_(?:executable|library|custom_target)\(([\w-]+)", lists))
        targets |= {f"lenslet-test-{name}" for name in re.findall(r"lenslet_test\((\w+)", lists)}
        targets |= {"all"} | {f"lenslet-bench-{name}" for name in re.findall(r"cuda_bench\(([\w-]+)", lists)}
        targets |= {re.sub(r".*/", "", name) for name in self.files if name.endswith(".py")}
        targets |= set(re.findall(r'^name = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
        for where, text in [*commands(), *spans()]:
            for program, build, preset in re.findall(r"\b(cmake|ctest)( --build)? --preset (\w+)", text):
                kind = "test" if program == "ctest" else "build" if build else "configure"
                self.must(preset in names[kind], where, f"no {kind} preset {preset}")
            for target in re.findall(r"--target ([\w-]+)", text):
                self.must(target in targets, where, f"no target {target}")
            for program in re.findall(r"\b(lenslet-[a-z][a-z-]*)", text):
                self.must(program in targets, where, f"no program {program}")
            self.must(not re.match(r"ninja\b(?!.* -C )", text), where, f"ninja without a folder: {text}")
            for folder in re.findall(r"(?<!\S)build/(\w+)", text):
                made = names["configure"] | {"quickstart", "test", "packages", "peers", "cutlass", "dist", "python"}
                self.must(folder in made, where, f"nothing builds into build/{folder}")


class Core(unittest.TestCase):
    """The core, which a newcomer can read in a day: the list in docs/architecture.md."""

    most_lines = 17_000

    def test_files_exist_and_are_few_lines(self):
        section = re.search(r"^## The core.*?(?=^## )", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"),
                            re.MULTILINE | re.DOTALL)[0]  # fmt: skip
        counts, core = [], {}
        for said, cell in re.findall(r"^[|] .+ [|] ([\d,]+) [|] (.+) [|]$", section, re.MULTILINE):
            row = {}
            for folder, names in re.findall(r"`([\w/]+)/`: ([^;]+)", cell):
                for name in ["*"] if names == "all" else names.split(", "):
                    found = [file for ending in ("h", "h.in", "cpp") for file in (ROOT / folder).glob(f"{name}.{ending}")]
                    self.assertTrue(found, f"no such file: {folder}/{name}")
                    row.update((file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")) for file in found)
            lines = sum(text.count("\n") for text in row.values())
            self.assertAlmostEqual(int(said.replace(",", "")), lines, delta=max(150, lines / 8), msg=cell)
            self.assertFalse(core.keys() & row.keys())
            core.update(row)
            counts.append(lines)
        self.assertGreater(len(counts), 5)
        self.assertLess(sum(counts), self.most_lines)
        families = "|".join(file.parent.name for file in (ROOT / "ops").glob("*/rows.cpp"))
        for file, text in core.items():
            for header in re.findall(rf'^#include "(ops/(?:{families})/.+)"', text, re.MULTILINE):
                self.assertIn(header, core, f"{file} names what is not of the core")


class Distribution(unittest.TestCase):
    """The package is called lenslet-runtime: "lenslet" on the package index is another project."""

    old_forms = re.compile(
        r"\b(?:pip[0-9.]*|pipx|uvx?|poetry|conda|mamba)\b[^\n`|&;]*\b(?:install|add|run|download|wheel)\b"  # with options
        r"""(?:[ \t][^\n`|&;]*?)?[ \t'"=]lenslet(?![\w./-])"""
        r"|(?<![\w.-])lenslet\[[a-z]"  # extras
        r"|(?<![\w.-])lenslet[ ]?(?:[=~]=|>=|@ )[ ]?[\w(]"  # a requirement
        r"|\blenslet-[\w.*]+(?:-[\w.]+)*[.]whl"
        r"""|"pip":[ ]*\[[^\]]*["']lenslet["']"""
        r"""|(?:metadata|version|distribution|requires|files)\(["']lenslet["']\)"""
    )

    def test_the_old_form_is_found(self):
        name = "lens" + "let"
        for wrong in (f"pip install {name}", f"pip install -U {name}", f"pip3 install '{name}[serve]'", f'"{name}[ray]"',
                      f"venv/bin/pip install --upgrade {name} numpy", f"{name}>=0.1", f"{name} @ file", f"uv add {name}",
                      f"{name}-0.1.0-py3-none-any.whl", f'{{"pip": ["numpy", "{name}"]}}', f"`{name}[serve]` brings",
                      f'importlib.metadata.version("{name}")', f"python3 -m pip install {name}"):  # fmt: skip
            self.assertRegex(wrong, self.old_forms)
        for right in (f"pip install '{name}-runtime[serve]'", f"{name} serve resnet50.onnx", f"import {name}", f"{name}.ray",
                      f"venv/bin/pip install build/dist/*.whl && venv/bin/{name}", f"{name}_runtime-0.1.0-py3.whl",
                      f"pip install . # {name} of this machine; {name} runs", f"{name} classify"):  # fmt: skip
            self.assertNotRegex(right.partition("#")[0], self.old_forms)

    def test_nothing_says_the_old_form(self):
        said = []
        for name in tree():
            file = ROOT / name
            if name == "CHANGELOG.md" or not file.is_file() or file.stat().st_size > 10_000_000:
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                if self.old_forms.search(line):
                    said.append(f"{name}:{number}: {line.strip()}")
        self.assertEqual(said, [])

    def test_the_name(self):
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        self.assertIn('[project]\nname = "lenslet-runtime"\n', project)
        self.assertIn('\n[project.scripts]\nlenslet = "lenslet.__main__:main"\n', project)
        urls = re.search(r"^\[project[.]urls\]\n((?:\w+ = \"https://.+\n)+)", project, re.MULTILINE)
        self.assertLessEqual({"Source", "Issues", "Changelog"}, set(re.findall(r"^\w+", urls[1], re.MULTILINE)))


class Results(unittest.TestCase):
    """Measured figures: docs/results/*.csv, and the files that tools/scripts/plot_ratios.py makes from them."""

    def test_picture_and_table_are_made_of_the_files(self):
        done = subprocess.run([sys.executable, ROOT / "tools/scripts/plot_ratios.py", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess((ROOT / "docs/ratios.svg").stat().st_size, 40_000)

    def test_every_file_is_a_table_that_says_what_it_is(self):
        files = sorted((ROOT / "docs/results").glob("*.csv"))
        self.assertEqual(sorted(re.findall(r"^[|] \[(.+[.]csv)\]", (ROOT / "docs/results/README.md").read_text(), re.MULTILINE)),
                         [file.name for file in files])  # fmt: skip
        for file in files:
            lines = file.read_text(encoding="utf-8").splitlines()
            said = [line for line in lines if line.startswith("# ")]
            rows = list(csv.reader(lines[len(said) :]))
            self.assertGreaterEqual(len(said), 2, file.name)
            self.assertEqual({len(row) for row in rows}, {len(rows[0])}, file.name)
            self.assertGreater(len(rows), 1, file.name)
            if date := re.search(r"\d{4}-\d\d-\d\d", file.name):
                self.assertTrue(date[0] in "\n".join(said) or "date" in rows[0], file.name)


class Conformance(unittest.TestCase):
    def test_counts(self):
        light = ["--without-light"] if os.environ.get("LENSLET_SANITIZE") else []
        done = subprocess.run([sys.executable, ROOT / "tools/scripts/conformance.py", COMMAND, "--check", *light],
                              capture_output=True, text=True)  # fmt: skip
        if done.stderr.startswith("skipped"):
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
