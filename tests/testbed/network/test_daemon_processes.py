"""The number of processes for daemons, and bring-up on a slow machine."""

import os

import pytest

from weft.testbed.network import bring_up

SPEC, SCHEME = "slimfly:q=5,p=1", "fatpaths:layers=3"
SCRIPT = f"""
import sys
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build
network = RunningNetwork.create(build("{SPEC}"), None, scheme="{SCHEME}", packed=eval(sys.argv[1]))
rows = network.rows()
network.down()
print(len(rows), len({{row.pid for row in rows.values()}}), network.processes)
"""


@pytest.mark.parametrize(
    ("processors", "packed", "daemons", "processes"),
    [
        (2, None, 32, 32),
        (2, None, 33, 2),
        (64, None, 1024, 1024),
        (1, None, 20, 1),
        (2, 0, 156, 156),
        (2, 5, 20, 5),
        (2, 5, 3, 3),
        (2, None, 0, 0),
    ],
)
def test_daemons_share_processes_where_they_are_many_for_the_processors(
    monkeypatch, processors, packed, daemons, processes
):
    own = {0: set(range(processors))}  # of this process, which may be few of the machine
    monkeypatch.setattr(os, "sched_getaffinity", own.__getitem__)
    assert bring_up.daemon_processes(packed, daemons) == processes


@pytest.mark.kernel
@pytest.mark.parametrize("packed", [None, 0])
def test_a_network_comes_up_with_a_tenth_of_the_machine(packed, slow_python):
    daemons, processes, chosen = map(int, slow_python(0.1, SCRIPT, str(packed)).split())
    assert processes == chosen == bring_up.daemon_processes(packed, daemons)
