"""What carries a scheme out: fixed routes, daemons, the data plane of a switch fabric, or the last two together.

A scheme of the data plane (daemons/routing/load_balancing.py) says which of several ports takes a packet.  Which ports
there are for each destination is told to it by the daemons of a scheme (daemons/core/schemes.py): those of `ecmp`,
unless the scheme is one of daemons that says itself how its switches balance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from daemons.core import schemes
from daemons.routing import load_balancing
from topologies.core.grammar import parse, unknown, unparse

FOLLOWER = "ecmp"  # the daemons that tell the data plane what lives


class Carriage(NamedTuple):
    """static: whether routes are fixed.  daemons: the spec of their scheme, balancing: that of the data plane's; "" for
    none."""

    static: bool
    daemons: str
    balancing: str


def carriage(scheme: str) -> Carriage:
    """What carries out `scheme`: none, static, or the spec of one in schemes.SCHEMES or balancing.KINDS.

    The latter takes the parameters of its daemons as well: ttc:delta=2,hello_ms=10.
    ValueError says in one line what is wrong with it.
    """
    if scheme in ("none", "static"):
        return Carriage(scheme == "static", "", "")
    name, given = parse(scheme)
    if name in schemes.SCHEMES:
        return Carriage(False, scheme, _balancing(schemes.SCHEMES[name].balancing, given))
    if name not in load_balancing.KINDS:
        raise ValueError(unknown("scheme", name, {"none", "static", *schemes.SCHEMES, *load_balancing.KINDS}))
    daemons = {key: given.pop(key) for key in list(given) if key in schemes.SCHEMES[FOLLOWER].parameters}
    chosen = unparse(name, given)
    load_balancing.scheme(chosen)
    return Carriage(False, unparse(FOLLOWER, daemons), chosen)


def under_delay(scheme: str) -> Carriage:
    """What carries out `scheme` where links hold packets back, which the data plane's program would miss: ECMP is left
    to the kernel's own routes.

    ValueError for every other scheme of the data plane.
    """
    how = carriage(scheme)
    if how.balancing == "ecmp":
        return how._replace(balancing="")
    if how.balancing:
        raise ValueError(f"scheme {scheme} and a delay exclude each other: what a delay holds back misses the program")
    return how


def _balancing(spec: str, given: Mapping[str, str]) -> str:
    """`spec` of the data plane with what a scheme of daemons was given for it."""
    if not spec:
        return ""
    name, own = parse(spec)
    chosen = unparse(name, {**own, **{key: value for key, value in given.items() if key in load_balancing.keys(name)}})
    load_balancing.scheme(chosen)
    return chosen
