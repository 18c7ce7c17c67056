"""Chaos campaigns against every kind of daemon in the simulator: python -m bench.chaos [--campaigns
10000].

An hour of one processor and more.  What has been done is kept in a file if one is given (--keep), a
line for each PART of a scheme's campaigns, and is not done again by the next that is given it: so
it can be stopped and go on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path

from bench.report import Line, show
from weft.daemons.core import registry
from weft.experiments.chaos.drawing import campaign
from weft.experiments.chaos.prediction import machines
from weft.experiments.chaos.shrinking import shrink
from weft.experiments.chaos.simulated import simulate
from weft.experiments.demo.chaos import NETWORKS, eager
from weft.topologies import build

PART, ROUND = 25, 250  # campaigns of a task; of one scheme before the next has its turn
STEPS, PAIRS = 10, 12
Part = tuple[str, int, int, int]  # a scheme, the number of its first campaign, how many, and pairs


def networks(name: str) -> list[str]:
    """Those of NETWORKS that the scheme `name` can route."""
    found = []
    for spec in NETWORKS:
        try:
            registry.checked(build(spec), eager(name))
        except ValueError:
            continue
        found.append(spec)
    return found


def carry_out(part: Part) -> list[str]:
    """Carry campaigns out, on the scheme's networks in turn; of each that failed what was wrong,
    and its command.
    """
    name, first, count, pairs = part
    specs, told = networks(name), []
    for seed in range(first, first + count):
        one = campaign(specs[seed % len(specs)], eager(name), seed, steps=STEPS, pairs=pairs)
        if findings := simulate(one):
            kind = findings[0].kind
            smaller = shrink(
                one,
                lambda each, kind=kind: any(each.kind == kind for each in simulate(each)),
                most_tries=100,
            )
            told.append(f"{findings[0]}\n    {smaller.command('fabric')}")
    return told


def kept(file: Path | None) -> dict[Part, list[str]]:
    """Return the faults of each part in `file`.

    A last line that was not written to its end is taken away.
    """
    if file is None or not file.exists():
        return {}
    *lines, rest = file.read_text(encoding="utf-8").split("\n")
    if rest:
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {
        (name, first, count, pairs): told
        for name, first, count, pairs, told in map(json.loads, lines)
    }


def parts(names: list[str], first: int, count: int, pairs: int) -> Iterator[list[Part]]:
    """The parts of each ROUND of each scheme, in the order in which they are carried out."""
    for begin in range(first, first + count, ROUND):
        upto = min(begin + ROUND, first + count)
        for name in names:
            yield [(name, each, min(PART, upto - each), pairs) for each in range(begin, upto, PART)]


def main() -> None:
    """Exit status 1 if a campaign ended otherwise than predicted."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--campaigns", type=int, default=10_000, help="for each kind of daemon")
    given.add_argument("--first", type=int, default=0, help="number of the first")
    given.add_argument("--scheme", action="append", help="default: one for each kind of daemon")
    given.add_argument(
        "--pairs", type=int, default=PAIRS, help="of servers looked at in each, others in each"
    )
    given.add_argument("--jobs", type=int, help="processes; default: one for each processor")
    given.add_argument(
        "--keep", type=Path, metavar="FILE", help="where what is done is kept, and gone on from"
    )
    options = given.parse_args()
    names, done = options.scheme or machines(), kept(options.keep)
    found: dict[str, list[str]] = {name: [] for name in names}
    with (
        ProcessPoolExecutor(options.jobs) as pool,
        open(options.keep or "/dev/null", "a", encoding="utf-8") as file,
    ):
        for round_of in parts(names, options.first, options.campaigns, options.pairs):
            missing = [each for each in round_of if each not in done]
            for one, told in zip(missing, pool.map(carry_out, missing), strict=True):
                done[one] = told
                print(json.dumps([*one, told]), file=file, flush=True)
            new = [each for one in round_of for each in done[one]]
            name, first, count, _ = round_of[-1]
            found[name] += new
            so_far = (
                f"{name}: {len(found[name])} of {first + count - options.first} not as predicted"
            )
            print("\n".join([so_far, *new]), file=sys.stderr, flush=True)
    lines = [
        Line(f"{name}: of {options.campaigns} not as predicted", len(failed), "", at_most=0)
        for name, failed in found.items()
    ]
    show("Chaos campaigns in the simulator", lines)
    for each in chain.from_iterable(found.values()):
        print(f"  {each}")
    sys.exit(any(found.values()))


if __name__ == "__main__":
    main()
