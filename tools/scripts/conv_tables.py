#!/usr/bin/env python3
"""From measurements of convolutions to the tables that tests hold the rule to, which chooses among algorithms.

    conv_tables.py layers RECORD.json... > tests/ops/data/h200_conv_batch1.txt
    conv_tables.py odd RECORD.json... > tests/ops/data/h100_conv_odd.txt

`layers` turns records of `lenslet bench conv --all-algorithms --device cuda --same-buffers --json` into a table that
tests/ops/cuda_choice_test.cpp holds the rule to: every algorithm's time on every layer, without conversions, a line a
layer. Where records have the same layer and algorithm, the last one counts.

`odd` does the same with records of `--drawn N --odd`, on a GPU or a CPU, for tests/ops/odd_choice_test.cpp: the least
times, of those up to three times and 3 us above a problem's fastest; where several records have one, the least.
"""

import argparse
import json
import pathlib
import re


def write_table(table):
    """"BY | PROBLEM | ALGORITHM US | ...": {(by, problem): {algorithm: us}}."""
    for (by, problem), rows in table.items():
        print(" | ".join([str(by), re.sub(r" b?float16\b", "", problem), *(f"{name} {us:.2f}" for name, us in rows.items())]))


def layers(records):
    table = {}
    for record in records:
        for entry in json.loads(pathlib.Path(record).read_text())["problems"]:
            rows = table.setdefault((entry["name"], entry["problem"]), {})
            rows.update({row["algorithm"]: row["us"] for row in entry["algorithms"] if "refused" not in row})
    write_table(table)


def odd(records):
    table = {}
    for path in records:
        record = json.loads(pathlib.Path(path).read_text())
        on_cpu = record["device"] == "cpu"
        for entry in record["problems"]:
            by = record["machine"]["threads"] if on_cpu else record["precision"]
            rows = table.setdefault((by, entry["problem"]), {})
            for row in entry["algorithms"]:
                if "refused" not in row:
                    us = row["least_us"] if on_cpu else row["us"]
                    rows[row["algorithm"]] = min(us, rows.get(row["algorithm"], us))
    write_table({key: {name: us for name, us in rows.items() if us <= 3 * min(rows.values()) + 3}
                 for key, rows in table.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("layers", "odd"))
    parser.add_argument("records", nargs="+")
    arguments = parser.parse_args()
    {"layers": layers, "odd": odd}[arguments.table](arguments.records)


if __name__ == "__main__":
    main()
