"""Chaos campaigns against every kind of daemon in the simulator: python -m bench.chaos [--campaigns 10000]."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor

from bench.report import Line, show
from weft.daemons.core import registry
from weft.experiments.chaos.drawing import campaign
from weft.experiments.chaos.prediction import machines
from weft.experiments.chaos.shrinking import shrink
from weft.experiments.chaos.simulated import simulate
from weft.experiments.demo.chaos import NETWORKS, eager
from weft.topologies import build

PART = 25  # campaigns of a task
STEPS = 10


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


def part(name: str, first: int, count: int) -> list[str]:
    """Carry campaigns out, on the scheme's networks in turn; of each that failed what was wrong, and its command."""
    specs, told = networks(name), []
    for seed in range(first, first + count):
        one = campaign(specs[seed % len(specs)], eager(name), seed, steps=STEPS)
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
    options = given.parse_args()
    lines, failed = [], []
    with ProcessPoolExecutor() as pool:
        for name in options.scheme or machines():
            firsts = range(options.first, options.first + options.campaigns, PART)
            counts = [min(PART, options.first + options.campaigns - first) for first in firsts]
            found = [each for told in pool.map(part, [name] * len(counts), firsts, counts) for each in told]
            lines.append(Line(f"{name}: of {options.campaigns} not as predicted", len(found), "", at_most=0))
            failed += found
            print(f"{name}: {len(found)} of {options.campaigns}", file=sys.stderr, flush=True)
    show("Chaos campaigns in the simulator", lines)
    for each in failed:
        print(f"  {each}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
