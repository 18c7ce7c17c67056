"""Random failures, repairs, lost messages and dead daemons in fat-trees routed by LBSP.

    .venv/bin/python -m bench.lbsp_fate fattree:k=4 1000 7        # 1000 sequences, from number 7

After each, every pair of edge switches that an up-down path joins must reach each other by every
path that packets may take.  Prints unreached pairs and the number of sequences that passed; ends
with status 1 if one failed.
"""

from __future__ import annotations

import sys
import time

from tests.daemons.lbsp.lbsp_fate import Fate
from weft.topologies import build

OF_ONE_FABRIC = 20
EVENTS = 8


def main(spec: str, sequences: int, first: int) -> int:
    """Return the number of sequences that failed."""
    topology, wrong, began = build(spec), 0, time.perf_counter()
    fate = Fate(topology, first)
    for number in range(first, first + sequences):
        if (number - first) % OF_ONE_FABRIC == 0:
            fate = Fate(topology, number)
        fate.strike(EVENTS)
        fate.settle()
        if unreached := fate.unreached():
            wrong += 1
            print(f"sequence {number}: {unreached[:4]} and {len(unreached[4:])} more")
    print(
        f"{spec}: {sequences - wrong} of {sequences} sequences passed in "
        f"{time.perf_counter() - began:.0f} s"
    )
    return wrong


if __name__ == "__main__":
    spec, sequences, first = [*sys.argv[1:], *("fattree:k=4", "500", "0")[len(sys.argv) - 1 :]]
    sys.exit(bool(main(spec, int(sequences), int(first))))
