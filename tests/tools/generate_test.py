"""lenslet generate: the man page and the completions contain every verb and option of --help, are well formed, and
complete. Missing shells are skipped by name."""

import os
import re
import shutil
import subprocess
import unittest

from command import Verb, options_by_verb


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"no {program}")


class Generate(Verb):
    def generated(self, what):
        return self.write(f"lenslet.{what}", self.passes("generate", what).encode())

    def run_with(self, *command):
        """Its output; nothing may be printed on stderr."""
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=self.folder,
                              env={**os.environ, "HOME": str(self.folder), "LC_ALL": "C.UTF-8"})
        self.assertEqual((done.returncode, done.stderr), (0, ""), command)
        return done.stdout

    def test_everything_is_there(self):
        known = options_by_verb()
        verbs = {name for verb in known for name in verb.split()}
        options = set().union(*known.values())
        self.assertLessEqual({"classify", "bench", "conv", "generate"}, verbs)
        self.assertLessEqual({"--help", "--version", "--all", "--model", "--set", "--output-dir"}, options)
        for what in ("man", "bash", "zsh", "fish"):
            written = re.sub(r"\\f[BIR]", "", self.passes("generate", what)).replace("\\-", "-")
            for name in verbs | options:
                shown = name.replace("--", "-l ") if what == "fish" else name
                self.assertRegex(written, rf"(?<![\w-]){re.escape(shown)}(?![\w-])", (what, name))

    def test_words_of_the_line_are_checked(self):
        self.fails(2, "{bash,fish,man,zsh}", "generate", "tcsh")

    @needs("groff")
    def test_man_page_is_well_formed(self):
        page = self.run_with("groff", "-ww", "-man", "-Tutf8", str(self.generated("man")))
        self.assertIn("lenslet bench conv", page)

    def complete(self, line):
        """bash's completions for the last word of `line`."""
        words = re.findall(r"=|[^ =]+", line) + ([""] if line.endswith(" ") else [])
        quoted = " ".join(f"'{word}'" for word in words)
        script = (f"source '{self.generated('bash')}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _lenslet\n"
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        return self.run_with("bash", "--norc", "-c", script).split()

    @needs("bash")
    def test_bash_completes(self):
        self.run_with("bash", "-n", str(self.generated("bash")))
        self.assertEqual(self.complete("lenslet cl"), ["classify"])
        self.assertEqual(self.complete("lenslet --al"), ["--all"])
        self.assertEqual(self.complete("lenslet --all insp"), ["inspect"])
        self.assertEqual(self.complete("lenslet bench --per"), ["--per-layer"])
        self.assertEqual(self.complete("lenslet bench conv --all-a"), ["--all-algorithms"])
        self.assertEqual(self.complete("lenslet bench conv --per"), [])  # of bench, not of conv
        self.assertEqual(self.complete("lenslet run x.onnx --device c"), ["cpu", "cuda"])
        self.assertEqual(self.complete("lenslet run x.onnx --device=c"), ["cpu", "cuda"])
        self.assertEqual(self.complete("lenslet run x.onnx --device="), ["auto", "cpu", "cuda"])
        self.assertEqual(self.complete("lenslet verify x.onnx --conv-algorithm al"), ["all"])
        self.assertEqual(self.complete("lenslet bench conv --set vgg16,resn"), ["vgg16,resnet50"])
        self.assertEqual(self.complete("lenslet inspect x.onnx --after fold_c"), ["fold_constants"])
        self.assertEqual(self.complete("lenslet generate z"), ["zsh"])
        self.assertEqual(self.complete("lenslet run x.onnx --threads "), [])  # a number
        (self.folder / "nets").mkdir()
        self.assertEqual(self.complete("lenslet inspect ne"), ["nets", "net.onnx"])
        self.assertEqual(self.complete("lenslet classify --model net."), ["net.onnx"])
        self.assertEqual(self.complete("lenslet run x.onnx --input x=net."), ["net.onnx"])
        self.assertEqual(self.complete("lenslet run x.onnx --output-dir ne"), ["nets"])

    @needs("zsh")
    def test_zsh_parses(self):
        self.run_with("zsh", "-n", str(self.generated("zsh")))

    @needs("fish")
    def test_fish_completes(self):
        script = self.generated("fish")
        self.run_with("fish", "--no-config", "-n", str(script))
        (self.folder / "nets").mkdir()
        for line, expected in (
            ("lenslet cl", ["classify"]),
            ("lenslet bench conv --all-a", ["--all-algorithms"]),
            ("lenslet bench conv --per", []),
            ("lenslet run x.onnx --device c", ["cpu", "cuda"]),
            ("lenslet bench conv --set vgg16,resn", ["vgg16,resnet50"]),
            ("lenslet inspect ne", ["nets/", "net.onnx"]),
            ("lenslet inspect --threads ", []),
            ("lenslet run x.onnx --output-dir ne", ["nets/"]),
        ):
            said = self.run_with("fish", "--no-config", "-c", f"source '{script}'; complete -C '{line}'")
            self.assertEqual(sorted(entry.split("\t")[0] for entry in said.splitlines()), sorted(expected), line)


if __name__ == "__main__":
    unittest.main()
