"""Tries everything, on all processors, and prints the table: `make oracle`.

`--sample SEED` tries a sample as CI does; `--part 2/8` the second of eight parts, as the whole takes an hour or more.
What is wrong and unsaid is printed as it is found.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
from collections.abc import Iterator


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, metavar="SEED")
    parser.add_argument("--only", default="", help="optimizers with this in their name")
    parser.add_argument(
        "--told", default="", metavar="WHAT", help="cases where surgery is told this only"
    )
    parser.add_argument("--part", default="1/1", metavar="K/N", type=part_of)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    chosen = parser.parse_args()

    from tests.oracle.cases import Case, every_case, pairwise
    from tests.oracle.table import UNSAID, table
    from tests.oracle.verdicts import judged_together

    seed = chosen.sample
    cases: Iterator[Case] = every_case() if seed is None else iter(pairwise(seed))
    wanted = (
        case
        for case in cases
        if chosen.only in case.optimizer and case.told.startswith(chosen.told)
    )
    groups = [list(group) for _, group in itertools.groupby(wanted, key=lambda case: case[:4])]
    number, count = chosen.part
    groups = groups[number - 1 :: count]
    context = multiprocessing.get_context("spawn")
    with context.Pool(chosen.processes) as pool:
        found = []
        for some in pool.imap(judged_together, groups, chunksize=8):
            found += some
            for one in some:
                if one.verdict == UNSAID:
                    echo(one.text)
    echo(table((one.case.optimizer, one.verdict) for one in found))
    unsaid = [one for one in found if one.verdict == UNSAID]
    echo(
        f"{sum(map(len, groups))} edits of {len(groups)} trainings, {len(found)} fields, {len(unsaid)} wrong and unsaid"
    )
    return bool(unsaid)


def part_of(text: str) -> tuple[int, int]:
    """`2/8` as numbers."""
    number, _, count = text.partition("/")
    if not 1 <= int(number) <= int(count):
        raise argparse.ArgumentTypeError(f"'{text}' is no part: the first of eight is 1/8")
    return int(number), int(count)


def echo(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
