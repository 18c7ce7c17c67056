"""How long do short flows take when every host sends to another, with a link failed, or a switch?

LBSP, section 4, figures 6a and 7b: rounds of random permutations, a flow of 32 kB from each host in
each round, at a load of 0.8 of the hosts' links.  Ours: flows of a round begin at random times
within it, 3.3 s of the paper are `rounds` rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.engines import common_parameters as common
from weft.experiments.lbsp import columns, lbsp_tcp
from weft.experiments.runner.definition import Experiment, Result, Run
from weft.experiments.runner.parameters import Integer
from weft.topologies import build
from weft.topologies.core.link import Mbps

if TYPE_CHECKING:
    from weft.testbed.traffic.flows import Flow

# after the last round: three of the timeouts that 2 Mbit/s make of the paper's 20 ms
GRACE_S = 32.0


def measure(run: Run) -> Result:
    """Times of all flows."""
    hosts = build(run.text("topology")).servers
    return lbsp_tcp.measure(
        run, list(traffic(run, hosts)), deadline_s=run.integer("rounds") * round_s(run) + GRACE_S
    )


def round_s(run: Run) -> float:
    """How long a flow of each host keeps its link busy for the load that is asked for."""
    bits = 8 * run.integer("flow_bytes")
    return bits / (run.integer("rate_mbps") * Mbps * float(run.parameters["load_fraction"]))


def traffic(run: Run, hosts: int) -> Iterator[Flow]:
    """The flows of `run`, the same for every scheme and damage."""
    from weft.experiments.engines.workloads import permutation
    from weft.testbed.traffic.flows import Flow

    rng = np.random.default_rng(run.seed)
    for number in range(run.integer("rounds")):
        for src, dst in permutation(rng, hosts):
            yield Flow((number + rng.random()) * round_s(run), src, dst, run.integer("flow_bytes"))


EXPERIMENT = Experiment(
    name="lbsp_short",
    question="How long do short flows take under LBSP, packet scatter and others, with all links "
    "sound and one not?",
    source="LBSP, section 4, figures 6a and 7b",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("fattree:k=8"),
        "scheme": common.SCHEME.over("lbsp", "spray", "ecmp", "letflow", "drill", "ttc"),
        "damage": lbsp_tcp.DAMAGE_OF_A_LINK.over("none", "link", "node", "degraded"),
        "tcp": lbsp_tcp.KIND_OF_TCP.over("rack", "reno"),
        "load_fraction": common.LOAD_FRACTION.over(0.8),
        "rate_mbps": common.RATE_MBPS.over(2),
        "queue_packets": common.QUEUE_PACKETS.over(250),
        "delay_us": common.DELAY_US.over(0),
        "flow_bytes": lbsp_tcp.FLOW_BYTES.over(32768),
        "oversubscription": lbsp_tcp.OVERSUBSCRIPTION.over(1),
        "rounds": Integer(
            meaning="rounds of random permutations", unit="rounds", least=1, most=10_000
        ).over(12),
    },
    columns=columns.TIMES,
    seeds=3,
    takes_s=2100,
    measure=measure,
    version=3,
    plot=lbsp_tcp.plot,
    check=lbsp_tcp.check,
)
