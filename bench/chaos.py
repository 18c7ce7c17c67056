"""Chaos campaigns against every kind of daemon in the simulator: python -m bench.chaos [--campaigns 10000]."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, repeat

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


def part(name: str, first: int, count: int, pairs: int = PAIRS) -> list[str]:
    """Carry campaigns out, on the scheme's networks in turn; of each that failed what was wrong, and its command."""
    specs, told = networks(name), []
    for seed in range(first, first + count):
        one = campaign(specs[seed % len(specs)], eager(name), seed, steps=STEPS, pairs=pairs)
        if findings := simulate(one):
            kind = findings[0].kind
            smaller = shrink(
                one, lambda each, kind=kind: any(each.kind == kind for each in simulate(each)), most_tries=100
            )
            told.append(f"{findings[0]}\n    {smaller.command('fabric')}")
    return told


def main() -> None:
    """Exit status 1 if a campaign ended otherwise than predicted."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--campaigns", type=int, default=10_000, help="for each kind of daemon")
    given.add_argument("--first", type=int, default=0, help="number of the first")
    given.add_argument("--scheme", action="append", help="default: one for each kind of daemon")
    given.add_argument("--pairs", type=int, default=PAIRS, help="of servers looked at in each, others in each")
    given.add_argument("--jobs", type=int, help="processes; default: one for each processor")
    options = given.parse_args()
    end, names = options.first + options.campaigns, options.scheme or machines()
    found: dict[str, list[str]] = {name: [] for name in names}
    with ProcessPoolExecutor(options.jobs) as pool:
        for begin in range(options.first, end, ROUND):
            upto = min(begin + ROUND, end)
            for name in names:
                firsts = range(begin, upto, PART)
                counts = [min(PART, upto - first) for first in firsts]
                told = list(pool.map(part, repeat(name), firsts, counts, repeat(options.pairs)))
                found[name] += [each for of_part in told for each in of_part]
                so_far = f"{name}: {len(found[name])} of {upto - options.first} not as predicted"
                print("\n".join([so_far, *(each for of_part in told for each in of_part)]), file=sys.stderr, flush=True)
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
