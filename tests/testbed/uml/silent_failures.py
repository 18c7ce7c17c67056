"""Started under a virtual clock: links of a DCell die silently, silent_failures.py COUNT.

Prints as JSON when each daemon began, and of each failure the link, when it died, when it was
mended, and when each node around it had lost its last neighbour, all in s of the monotonic clock.
"""

import json
import sys

import numpy as np

from weft.experiments.engines.reachability import around
from weft.testbed.linux import clock
from weft.testbed.mininet.net import Net
from weft.topologies.core.link import LinkSpec, Mbps

HELLO_S = 0.03
rng = np.random.default_rng(0)
found = []
with Net(
    "dcell:n=4,k=1",
    link=LinkSpec(rate_bps=100 * Mbps, queue_packets=250, delay_us=5),
    routing="dr",
    packed=0,  # daemons that share a process tick together, those of the simulator do not
) as net:
    began = {node: row.began_ns / 1e9 for node, row in net.network.rows().items()}
    for _ in range(int(sys.argv[1])):
        clock.sleep(HELLO_S * (1 + float(rng.random())))
        link = int(rng.integers(len(net.topology.links)))
        name = net.topology.link_name(link)
        died_ns = clock.monotonic_ns()
        net.fail(name, silent=True)
        clock.sleep(4 * HELLO_S)  # after three everybody has noticed
        rows = net.network.rows()
        net.restore(name)
        noticed = {node: rows[node].lost_ns / 1e9 for node in around(net.topology, link)}
        found.append(
            {"link": link, "died": died_ns / 1e9, "mended": clock.monotonic(), "noticed": noticed}
        )
        net.wait_until_converged()
print(json.dumps({"began": began, "failures": found}))
