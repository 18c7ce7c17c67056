"""Started under a virtual clock: one TCP flow over a star, star.py RATE_BPS DELAY_US SECONDS.

Prints as JSON how much of the rate's payload it got and the least round-trip time in us.
"""

import json
import sys

from weft.testbed.mininet.net import Net
from weft.testbed.traffic import flows
from weft.topologies.core.link import LinkSpec

rate_bps, delay_us, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
link = LinkSpec(rate_bps=rate_bps, queue_packets=250, delay_us=delay_us)
with Net("star:n=2", link=link, routing="static") as net:
    flow = flows.Flow(0, 0, 1, None)
    table = flows.run(
        net,
        [flow],
        flows.FlowOptions(deadline_s=seconds, congestion_control="cubic", warm_up_s=seconds / 5),
    )
    share = table.goodput_bps / (rate_bps * 1448 / 1514)
    print(json.dumps({"share": share, "min_rtt_us": table.results[0].tcp.min_rtt_us}))
