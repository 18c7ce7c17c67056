"""Generalized DCell (CCRDN 3.1.1): DCell with any connection rule, and two such networks.

Gamma- and delta-DCell are two rules of the paper that generalised DCell (Kliegl et al., INFOCOM
workshops 2010; CCRDN's [15, 16]), as remembered from there, where server b of copy a is joined to

    gamma  server b - 1 of copy a + b, b odd; server b + 1 of copy a - (b + 1), b even
    delta  server b + t/2 of copy a + b + 1, b < t/2; server b - t/2 of copy a - (b - t/2) - 1, b >=
    t/2

with copies counted modulo t + 1.  That either is a perfect matching, for even t, is checked.  A
family with a rule of your own takes its two functions, or a permutation (connection_rule.py):

    add(family("mine", ConnectionRule(gateway, far_subnetwork), summary="...", source="..."))
    build("mine:n=4,k=2")
"""

from __future__ import annotations

from functools import partial

from weft.topologies import FAMILY_MODULES
from weft.topologies.core.family import Family
from weft.topologies.recursive import dcell
from weft.topologies.recursive.ccrdn import FAMILY
from weft.topologies.recursive.connection_rule import ConnectionRule
from weft.topologies.recursive.connection_rule import add as add_rule


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
        parameters=dcell.PARAMETERS,
        build=partial(dcell.build, number),
    )


FAMILIES = {
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
    FAMILY_MODULES[added.name] = "recursive.generalized"
    return added
