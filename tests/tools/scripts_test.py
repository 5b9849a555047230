"""A script's phases (tools/scripts/deps.sh): measured in processor time, and over the budget it fails."""

import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUSY = 'python3 -c "import time\nwhile time.process_time() < 2.2: pass"'


def phases(body, budget=None, reference_ms=1):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LENSLET_")}
    if budget is not None:
        environment["LENSLET_CPU_BUDGET_S"] = str(budget)
    if reference_ms is not None:
        environment["LENSLET_REFERENCE_MS"] = str(reference_ms)
    return subprocess.run(["bash", "-euo", "pipefail", "-c", f". tools/scripts/deps.sh\n{body}"], cwd=ROOT, env=environment,
                          capture_output=True, text=True, timeout=100)  # fmt: skip


class PhaseBudget(unittest.TestCase):
    def test_over_the_budget_fails_and_below_it_passes(self):
        script = f"phase 'being busy'\n{BUSY}\nphases_done"
        over = phases(script, 1)
        self.assertEqual(over.returncode, 1, over.stderr)
        self.assertRegex(over.stderr, "[2-9] s of processor time, over the budget of 1 s")
        self.assertRegex(over.stdout, r"\n +\d+ +[2-9] +1  being busy\n +\d+ +[2-9]         in all\n")
        for budget in (60, None):
            below = phases(script, budget)
            self.assertEqual((below.returncode, below.stderr), (0, ""))

    def test_a_slower_machine_may_take_longer(self):
        slow = phases(f"phase 'being busy'\n{BUSY}\nphases_done", 1, reference_ms=92000)
        self.assertEqual((slow.returncode, slow.stderr), (0, ""))
        self.assertRegex(slow.stdout, r"\n +\d+ +[2-9]  92000  being busy\n")

    def test_the_reference_compile(self):
        """This machine's: more than nothing, less than a busy minute; not part of a phase, and not for one of no time."""
        measured = phases("phase nothing\nphases_done\ntime_reference\necho it takes $reference_ms", 1, reference_ms=None)
        self.assertEqual((measured.returncode, measured.stderr), (0, ""))
        reference = int(re.search(r"\n +[01] +0 +920  nothing\n(?s:.*)it takes (\d+)\n", measured.stdout)[1])
        self.assertTrue(100 < reference < 60000, reference)

    def test_a_phase_counts_by_the_mean_of_its_minutes(self):
        times = "sleep() { command sleep 0.5; }\ncpu_ticks() { echo $((SECONDS * 100000)); }\n" \
                "time_reference() { if [ $BASHPID = $$ ]; then reference_ms=1000; else reference_ms=3000; fi; }"
        mean = phases(f"{times}\nphase mixed\ncommand sleep 1.9\nphases_done", 1, reference_ms=None)
        found = int(re.search(r"\n +\d+ +\d+ +(\d+)  mixed\n", mean.stdout)[1])
        self.assertTrue(1000 < found < 3000, mean.stdout)

    def test_waiting_costs_nothing(self):
        waited = phases("phase waiting\nsleep 3\nphases_done", 1)
        self.assertEqual((waited.returncode, waited.stderr), (0, ""))

    def test_a_script_that_another_executes_goes_on_with_its_sum(self):
        second = '. tools/scripts/deps.sh; phase second; phases_done'
        both = phases(f"phase first\n{BUSY}\nphase_ends\nexec bash -c '{second}'", 1)
        self.assertEqual(both.returncode, 1, both.stdout)
        self.assertRegex(both.stdout, r"\n +\d+ +[2-9] +1  first\n +\d+ +0 +1  second\n")


if __name__ == "__main__":
    unittest.main()
