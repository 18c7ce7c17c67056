"""FiConn (Li et al., INFOCOM 2009; CCRDN 3.2): at most two ports a server.

Labels and addresses as in dcell.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.topology import Topology
from weft.topologies.recursive import dcell
from weft.topologies.recursive.ccrdn import FICONN


def build(parameters: Mapping[str, int]) -> Topology:
    """FiConn_{k,n}; n must be even (CCRDN 3.2).

    An even n is enough: with t_{l-1} = m 2^l, t_l = m (m + 1) 2^l is a multiple of 2^(l+1), so each
    level finds an even number of free servers.
    """
    if parameters["n"] % 2:
        raise ValueError(f"ficonn: n must be even, got {parameters['n']}")
    return dcell.build(FICONN, parameters)


FAMILIES = {
    "ficonn": Family(
        name="ficonn",
        summary="recursive; servers have two ports, and half of the free ones are joined at "
        "each level",
        source="Li et al., INFOCOM 2009; CCRDN, section 3.2",
        example="ficonn:n=4,k=2",
        parameters={
            "n": IntegerParameter("servers of a level-0 switch, even", 4),
            "k": IntegerParameter("level, the depth of recursion", 0),
        },
        build=build,
    ),
}
