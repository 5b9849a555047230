"""attack_server.py [ATTACK...]: attacks `lenslet serve` in all ways that attacks.py and grpc_attacks.py of tests/serve
have, in full, and prints what became of it: memory at its peak above what it was before, the longest answer of a health
probe, what a second client was answered, and the attacker. Exit code 1 where a bound was passed. Run it with the package
on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "serve"))
from grpc_attacks import attacks  # noqa: E402
from harness import Server, write_models  # noqa: E402

ATTACKS, Watch = attacks.ATTACKS, attacks.Watch  # gRPC's among them
MODELS = ("sums", "lookup", "rgb", "segment")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(ATTACKS)}; all, where none is named")
    parser.add_argument("--count", type=int, default=20000, help="mutated connections (%(default)s)")
    parser.add_argument("--memory-mib", type=int, default=256, help="--max-memory-mib of the server (%(default)s)")
    parser.add_argument("--small", action="store_true", help="as the tests do it")
    arguments = parser.parse_args()
    os.environ["LENSLET_ATTACK_COUNT"] = str(arguments.count)
    attacks.more_files()
    passed = True
    print("| attack | memory above before, MiB | longest probe, ms | second client | answered |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="lenslet-attack-") as folder:
        write_models(pathlib.Path(folder))
        for name in arguments.attacks or ATTACKS:
            server = Server(*(f"{folder}/{model}.onnx" for model in MODELS), f"--max-memory-mib={arguments.memory_mib}")
            try:
                with Watch(server) as watch:
                    found = ATTACKS[name](server, not arguments.small)
                grown = watch.peak - watch.before
                good = grown <= 1.1 * arguments.memory_mib and watch.stall <= 0.1 and not watch.failed
                good = good and not watch.answers["WRONG"] and not any(str(key)[:5].isupper() for key in found)
                passed = passed and good
                said = [", ".join(f"{key}: {value}" for key, value in sorted(each.items(), key=str))
                        for each in (watch.answers, found)]  # fmt: skip
                print(f"| {name.replace('_', ' ')} | {grown} | {watch.stall * 1e3:.0f} | {said[0]} | {said[1]} |"
                      f"{'' if good else ' **passed a bound**'}", flush=True)  # fmt: skip
                if server.errors:
                    print("".join(server.errors[-20:]), file=sys.stderr)
            finally:
                server.end()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
