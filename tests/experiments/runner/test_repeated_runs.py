"""A run repeats under the virtual clock: row, logs of daemons, and every packet with its time."""

import hashlib
import io
import json
import os
import sys
from functools import cache
from pathlib import Path

import pytest

from weft.experiments.runner.definition import find
from weft.testbed.uml import uml

RECORDED = Path(__file__).with_name("recorded.py")
RUNS = {
    "fabric_gain": {
        "topology": "clos:n=2,r=2,m=2",
        "traffic": "permutation",
        "scheme": "drill",
        "rate_mbps": "10",
        "seconds": "1",
    },
    "proxy_failover": {
        "topology": "dcell:n=3,k=1",
        "routing": "dfr",
        "failure": "silent-link",
        "pairs": "2",
        "failure_s": "0.5",
    },
}


def record(name: str, seed: int = 0) -> str:
    """Return the results of recorded.py for an experiment's first cell with the values of RUNS."""
    run = find(name).plan(RUNS[name], seeds=seed + 1, clock="virtual").runs[seed]
    exchange = uml.Exchange({"run.json": json.dumps(run.content)})
    out = io.BytesIO()
    status = uml.run(
        [sys.executable, str(RECORDED)],
        virtual=uml.VirtualClock(seed=seed + 1),
        memory_mb=2000,
        timeout_s=1700,
        env=os.environ | {"NUMBA_CACHE_DIR": "/tmp/compiled"},
        exchange=exchange,
        stdout=out,
        stderr=out,
    )
    assert status == 0, out.getvalue().decode()
    return exchange.report


first_recorded = cache(record)


@pytest.mark.virtual
@pytest.mark.parametrize("name", RUNS)
def test_a_run_repeats_to_the_byte(name):
    first = first_recorded(name)
    results = json.loads(first)
    assert results["captures"][0]["packets"] > 1000
    assert name == "fabric_gain" or any(results["logs"][0].values())
    assert record(name) == first


@pytest.mark.virtual
def test_another_seed_gives_other_packets():
    captures = json.loads(first_recorded("fabric_gain"))["captures"]
    assert captures != json.loads(record("fabric_gain", seed=1))["captures"]


if __name__ == "__main__":  # repetitions by hand: test_repeated_runs.py EXPERIMENT TIMES
    _, experiment, times = sys.argv
    for _ in range(int(times)):
        print(hashlib.sha256(record(experiment).encode()).hexdigest(), flush=True)
