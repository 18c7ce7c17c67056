"""DCell (Guo et al., SIGCOMM 2008; CCRDN 3.1) and beta-DCell (CCRDN 3.1.1)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from topologies.ccrdn import BETA_DCELL, DCELL, Ccrdn, CcrdnNaming
from topologies.registry import Family, Parameter

if TYPE_CHECKING:
    from topologies.graph import Topology

PARAMETERS = {
    "n": Parameter(meaning="servers of a level-0 switch", least=3),
    "k": Parameter(meaning="level, the depth of recursion", least=0),
}


def build(family: str, rule: int, parameters: Mapping[str, int]) -> Topology:
    """The CCRDN of `rule` as a graph: port 0 of a server leads to its crossbar, the others to servers."""
    import numpy as np

    from topologies.graph import Topology

    network = Ccrdn(rule, parameters["n"], parameters["k"])
    naming = CcrdnNaming(network)
    naming.layout.shifts  # refuses a network that has more labels than addresses before it fills the memory
    servers = np.arange(network.t[-1])
    crossbar = [servers, servers * 0, network.t[-1] + servers // network.n, servers % network.n]
    links, level = [np.stack(crossbar, 1)], [np.zeros(len(servers), dtype=np.int8)]
    for at in range(1, network.k + 1):
        ends = [(u, network.peer(u, at)) for u in range(network.t[-1])]
        pairs = np.array([(u, v) for u, v in ends if u < v], dtype=np.int64).reshape(-1, 2)
        port = np.full(len(pairs), network.port(at))
        links.append(np.stack([pairs[:, 0], port, pairs[:, 1], port], 1))
        level.append(np.full(len(pairs), at, dtype=np.int8))
    return Topology(
        family=family,
        parameters=dict(parameters),
        servers=naming.servers,
        switches=naming.switches,
        links=np.concatenate(links).astype(np.int64),
        level=np.concatenate(level),
        server_centric=True,
        naming=naming,
    )


FAMILIES = {
    "dcell": Family(
        name="dcell",
        summary="recursive; every server has k links to servers of other sub-networks",
        source="Guo et al., SIGCOMM 2008; CCRDN, section 3.1",
        example="dcell:n=4,k=1",
        parameters=PARAMETERS,
        build=partial(build, "dcell", DCELL),
    ),
    "beta-dcell": Family(
        name="beta-dcell",
        summary="DCell with the beta connection rule, whose paths are shorter",
        source="CCRDN, section 3.1.1",
        example="beta-dcell:n=4,k=1",
        parameters=PARAMETERS,
        build=partial(build, "beta-dcell", BETA_DCELL),
    ),
}
