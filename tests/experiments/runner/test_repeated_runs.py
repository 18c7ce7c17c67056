"""The same run twice under the virtual clock: its row, what its daemons say, and every packet with
its time."""

import hashlib
import io
import json
import os
import sys
from pathlib import Path

import pytest

from weft.experiments.runner.definition import find
from weft.testbed.uml import uml

RECORDED = Path(__file__).with_name("recorded.py")
RUNS = {
    "first_light": {"topology": "dcell:n=3,k=1", "iperf_s": "1"},
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


def recorded(name: str, seed: int = 0) -> str:
    """What recorded.py tells of the first cell of an experiment with the values of RUNS."""
    run = find(name).plan(RUNS[name], seeds=seed + 1, clock="virtual").runs[seed]
    exchange = uml.Exchange({"run.json": json.dumps(run.content)}, ["recorded.json"])
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
    return exchange.results["recorded.json"]


@pytest.mark.virtual
@pytest.mark.parametrize(
    "name", [pytest.param("first_light", marks=pytest.mark.slow), "fabric_gain", "proxy_failover"]
)
def test_a_run_repeats_to_the_byte(name):
    first = recorded(name)
    told = json.loads(first)
    assert told["captures"][0]["packets"] > 1000
    assert name == "fabric_gain" or any(told["logs"][0].values())
    assert recorded(name) == first


@pytest.mark.virtual
def test_another_seed_gives_other_packets():
    one, other = (json.loads(recorded("fabric_gain", seed)) for seed in (0, 1))
    assert one["captures"] != other["captures"]


if __name__ == "__main__":  # how often: test_repeated_runs.py EXPERIMENT TIMES
    _, asked, times = sys.argv
    for _ in range(int(times)):
        print(hashlib.sha256(recorded(asked).encode()).hexdigest(), flush=True)
