"""DCell with any connection rule, and FiConn, whose labels and addresses are alike.

DCell (Guo et al., SIGCOMM 2008; CCRDN 3.1) and beta-DCell (CCRDN 3.1.1).

A server's label is that of the paper, x_k ... x_0, and its address 10 with the same digits: server
1.0.3 of a DCell_{2,n} is 10.1.0.3, and copy 1 of DCell_{1,n} within it is 10.1.0.0/16.  See
address.py for larger digits.

FiConn (Li et al., INFOCOM 2009; CCRDN 3.2): at most two ports a server.

Generalized DCell (CCRDN 3.1.1) is DCell with any connection rule.  Gamma- and delta-DCell are two
rules of the paper that generalised DCell (Kliegl et al., INFOCOM
workshops 2010; CCRDN's [15, 16]), as remembered from there, where server b of copy a is joined to

    gamma  server b - 1 of copy a + b, b odd; server b + 1 of copy a - (b + 1), b even
    delta  server b + t/2 of copy a + b + 1, b < t/2; server b - t/2 of copy a - (b - t/2) - 1, b >=
    t/2

with copies counted modulo t + 1.  That either is a perfect matching, for even t, is checked.  A
family with a rule of your own takes its two functions, or a permutation (ccrdn.py):

    add(family("mine", ConnectionRule(gateway, far_subnetwork), summary="...", source="..."))
    build("mine:n=4,k=2")
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from weft.topologies import FAMILY_MODULES
from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.topology import Topology, require_room, wire
from weft.topologies.recursive.ccrdn import (
    BETA_DCELL,
    DCELL,
    FAMILY,
    FICONN,
    FIRST,
    Ccrdn,
    CcrdnNaming,
    ConnectionRule,
    gateway,
)
from weft.topologies.recursive.ccrdn import add as add_rule

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


def build_ficonn(parameters: Mapping[str, int]) -> Topology:
    """FiConn_{k,n}; n must be even (CCRDN 3.2).

    An even n is enough: with t_{l-1} = m 2^l, t_l = m (m + 1) 2^l is a multiple of 2^(l+1), so each
    level finds an even number of free servers.
    """
    if parameters["n"] % 2:
        raise ValueError(f"ficonn: n must be even, got {parameters['n']}")
    return build(FICONN, parameters)


def gamma_gateway(size: int, i: int, j: int) -> int:
    """Return gateway() of gamma-DCell."""
    ahead = j - i if j > i else j - i + size + 1
    return ahead if ahead & 1 else size - ahead


def gamma_far_copy(size: int, i: int, p: int) -> int:
    """Return far_subnetwork() of gamma-DCell."""
    ahead = p if p & 1 else size - p
    return i + ahead if i + ahead <= size else i + ahead - size - 1


def delta_gateway(size: int, i: int, j: int) -> int:
    """Return gateway() of delta-DCell."""
    ahead = j - i if j > i else j - i + size + 1
    half = size >> 1
    return ahead - 1 if ahead <= half else half + size - ahead


def delta_far_copy(size: int, i: int, p: int) -> int:
    """Return far_subnetwork() of delta-DCell."""
    half = size >> 1
    ahead = p + 1 if p < half else half + size - p
    return i + ahead if i + ahead <= size else i + ahead - size - 1


def even(size: int) -> bool:
    """Return True if servers can be joined two by two."""
    return size % 2 == 0


def family(name: str, rule: ConnectionRule, *, summary: str, source: str) -> Family:
    """Return generalized DCell with `rule` as the family `name`.

    ValueError if the name is taken.
    """
    if name in FAMILY.values():
        raise ValueError(f"{name}: there is such a family")
    number = add_rule(rule)
    FAMILY[number] = name
    return Family(
        name=name,
        summary=summary,
        source=source,
        example=f"{name}:n=4,k=1",
        parameters=PARAMETERS,
        build=partial(build, number),
    )


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
        build=build_ficonn,
    ),
    "gamma-dcell": family(
        "gamma-dcell",
        ConnectionRule(gamma_gateway, gamma_far_copy, "an even number of servers", even),
        summary="DCell with the gamma connection rule; n must be even",
        source="Kliegl et al., INFOCOM workshops 2010; CCRDN, section 3.1.1",
    ),
    "delta-dcell": family(
        "delta-dcell",
        ConnectionRule(delta_gateway, delta_far_copy, "an even number of servers", even),
        summary="DCell with the delta connection rule; n must be even",
        source="Kliegl et al., INFOCOM workshops 2010; CCRDN, section 3.1.1",
    ),
}


def add(added: Family) -> Family:
    """Register the family `added` under its name."""
    FAMILIES[added.name] = added
    FAMILY_MODULES[added.name] = "recursive.dcell"
    return added
