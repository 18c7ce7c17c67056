"""DCell (Guo et al., SIGCOMM 2008; CCRDN 3.1) and beta-DCell (CCRDN 3.1.1).

A server's label is that of the paper, x_k ... x_0, and its address 10 with the same digits: server
1.0.3 of a DCell_{2,n} is 10.1.0.3, and copy 1 of DCell_{1,n} within it is 10.1.0.0/16.  See
address.py for larger digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.topology import Topology, require_room, wire
from weft.topologies.recursive.ccrdn import BETA_DCELL, DCELL, FAMILY, Ccrdn, CcrdnNaming, gateway
from weft.topologies.recursive.connection_rule import FIRST

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


PARAMETERS = {
    "n": IntegerParameter("servers of a level-0 switch", 3),
    "k": IntegerParameter("level, the depth of recursion", 0),
}


def build(rule: int, parameters: Mapping[str, int]) -> Topology:
    """Return the CCRDN of `rule`: port 0 of a server leads to its crossbar, others to servers."""
    import numpy as np

    network = Ccrdn(rule, parameters["n"], parameters["k"])
    naming = CcrdnNaming(network)
    t, g = network.t, network.copies
    bridges = sum(t[-1] // t[h] * (g[h] * (g[h] - 1) // 2) for h in range(1, network.k + 1))
    require_room(FAMILY[rule], naming, t[-1] + bridges)
    servers = np.arange(t[-1])
    levels = [wire(servers, 0, t[-1] + servers // network.n, servers % network.n)]
    levels += [links(network, level) for level in range(1, network.k + 1)]
    return Topology.wired(FAMILY[rule], parameters, naming, levels, server_centric=True)


def links(network: Ccrdn, level: int) -> NDArray[np.int64]:
    """The links of `level` >= 1 of every X(level): one between any two of its copies."""
    import numpy as np

    t, port = network.t, network.port(level)
    i, j = np.triu_indices(network.copies[level], 1)
    joined = gateway
    if network.rule >= FIRST:  # a function of two integers, not of arrays
        joined = np.vectorize(gateway, excluded=(0, 1, 2), otypes=[np.int64])
    a = i * t[level - 1] + joined(network.rule, t, level, i, j)
    b = j * t[level - 1] + joined(network.rule, t, level, j, i)
    first = np.arange(0, t[-1], t[level])[:, None]
    return wire(first + a, port, first + b, port)


FAMILIES = {
    "dcell": Family(
        name="dcell",
        summary="recursive; every server has k links to servers of other sub-networks",
        source="Guo et al., SIGCOMM 2008; CCRDN, section 3.1",
        example="dcell:n=4,k=1",
        parameters=PARAMETERS,
        build=partial(build, DCELL),
    ),
    "beta-dcell": Family(
        name="beta-dcell",
        summary="DCell with the beta connection rule, whose paths are shorter",
        source="CCRDN, section 3.1.1",
        example="beta-dcell:n=4,k=1",
        parameters=PARAMETERS,
        build=partial(build, BETA_DCELL),
    ),
}
