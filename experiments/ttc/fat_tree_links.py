"""FT(n,d) as arrays for the models of TTC's evaluation, and which link a switch takes under each
scheme.

All is integers and arrays, and random numbers are arguments, so the same source runs as plain
Python in a test and as machine code in an experiment.  Which port is taken is decided by the
functions of daemons/routing/selection.py.

Links are numbered 0 .. (2n-1) N - 1, N = 2 d^n being the hosts: the link between switch s of layer
l and the switch at its up-port u is (l-1) N + s d + u on the way up and (n-1 + l-1) N + s d + u on
the way down, and the one to host t is (2n-2) N + t.  So links [i N, (i+1) N) are a layer, first
those upwards, then those downwards, then the hosts'. Switch s of layer l has the number (l-1) N / d
+ s.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.daemons.core import registry
from weft.daemons.load_balancing.scheme import ChoiceRule
from weft.daemons.routing.selection import below, d_mod_k, drill, shortest, ttc
from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.compiled import allocates_nothing
from weft.topologies import family
from weft.topologies.core.grammar import parse
from weft.topologies.tiered.fattree import shape

D_MOD_K, RANDOM, DRILL = int(ChoiceRule.D_MOD_K), int(ChoiceRule.RANDOM), int(ChoiceRule.DRILL)
TTC, SHORTEST = int(ChoiceRule.TTC), int(ChoiceRule.SHORTEST)
DRAWS = 2  # random words that a decision takes at most
MODELLED = {
    "dmodk": (),
    "vlb": ("per",),
    "rps": (),
    "ecmp": (),
    "micro": (),
    "ttc": ("delta", "tie"),
    "jsq": (),
}


class LayeredTreeShape(NamedTuple):
    """FT(n,d): n layers of 2d-port switches."""

    n: int
    d: int

    @property
    def hosts(self) -> int:
        """N, which is also the number of links in a layer."""
        hosts: int = 2 * self.d**self.n
        return hosts

    @property
    def links(self) -> int:
        return (2 * self.n - 1) * self.hosts

    @property
    def layers(self) -> list[str]:
        """What each layer of links is called, in the order of their numbers."""
        up = [f"up{layer}" for layer in range(1, self.n)]
        return up + [f"down{layer}" for layer in range(1, self.n)] + ["hosts"]


def fat_tree(experiment: str, topology: str) -> LayeredTreeShape:
    """The FT(n,d) that `topology` names; ValueError, for `experiment`, if it is none."""
    name, given = parse(topology)
    if name != "fattree":
        raise ValueError(f"{experiment}: topology must be a fattree, got {topology}")
    n, d, pods, hosts = shape(family(name).parameters_from(given))
    if hosts != d or d < 2 or pods != 2 * d:
        raise ValueError(
            f"{experiment}: a whole fattree without oversubscription, with k >= 4 or d >= 2"
        )
    return LayeredTreeShape(n, d)


class SchemeRules(NamedTuple):
    """A scheme as the models take it."""

    rule: int
    delta: int
    ties_redirect: int


def rules(spec: str) -> SchemeRules:
    """The scheme that `spec` names, for the models.

    ValueError for a scheme or a parameter that they lack.
    """
    name, _ = parse(spec)
    selection, found = registry.data_plane(spec)
    scheme = selection.rule(found)
    if name not in MODELLED:
        raise ValueError(f"the models of TTC have {', '.join(MODELLED)}, and not {name}")
    for key, value in found.items():
        if key not in MODELLED[name] and value:
            known = " and ".join(MODELLED[name]) or "no parameters"
            given = parse(spec)[1].get(key, value)
            raise ValueError(
                f"the models of TTC have no {key}={given}: of {name} they know {known}"
            )
    rule = (
        ChoiceRule.RANDOM
        if scheme.rule in (ChoiceRule.FLOW_HASH, ChoiceRule.KERNEL)
        else ChoiceRule(scheme.rule)
    )  # a hash as good as random
    return SchemeRules(int(rule), scheme["delta"], scheme["tie"])


class FatTreeLinks(NamedTuple):
    """FT(n,d) as its links, for machine code.

    layer, block: of each switch: its layer, and the digits of its code from that of its layer on,
        which are those of the hosts below it; 0 in layer n, which has all hosts below it.
    first_up: the first of its d links upwards.  down: its link at each down-port, shape (switches,
        2d).
    block_of, digit: of each host, shape (n+1, hosts), by layer: what `block` is for the switches
        above it, and its digit of that layer, which is the down-port to it and the up-port that
        D-mod-k takes.
    entry: the switch of each host.  far: the switch at the end of each link, -1 where it is a host.
    """

    n: int
    d: int
    layer: Ints
    block: Ints
    first_up: Ints
    down: Ints
    block_of: Ints
    digit: Ints
    entry: Ints
    far: Ints


def links(ft: LayeredTreeShape) -> FatTreeLinks:
    """The links of `ft`, by equations (1) and (3) of TTC."""
    n, d = ft
    hosts, width = ft.hosts, ft.hosts // d
    host = np.arange(hosts)
    switches = (n - 1) * width + width // 2
    layer = np.minimum(np.arange(switches) // width + 1, n)
    s = np.arange(switches) - (layer - 1) * width
    block_of, digit = np.zeros((n + 1, hosts), np.int64), np.zeros((n + 1, hosts), np.int64)
    for tier in range(1, n + 1):
        block_of[tier] = host // d**tier if tier < n else 0
        digit[tier] = host // d ** (tier - 1) % (d if tier < n else 2 * d)
    far, down = np.full(ft.links, -1), np.full((switches, 2 * d), -1)
    down[host // d, host % d] = (2 * n - 2) * hosts + host
    for tier in range(1, n):
        place = d ** (tier - 1)
        lower, up = np.arange(hosts) // d, np.arange(hosts) % d
        port = lower // place % (d if tier < n - 1 else 2 * d)
        upper = tier * width + lower + (up - port) * place
        down[upper, port] = (n - 1 + tier - 1) * hosts + np.arange(hosts)
        far[(tier - 1) * hosts : tier * hosts] = upper
        far[(n - 1 + tier - 1) * hosts : (n - 1 + tier) * hosts] = (tier - 1) * width + lower
    block = np.where(layer < n, s // d ** (layer - 1), 0)
    return FatTreeLinks(
        n, d, layer, block, (layer - 1) * hosts + s * d, down, block_of, digit, host // d, far
    )


@allocates_nothing
def choose(loads: Ints, default: int, draws: Ints, rules: SchemeRules) -> int:
    """The up-port that takes a packet or a flow, by the ports' `loads`; `default` is D-mod-k's."""
    n = len(loads)
    if rules.rule == D_MOD_K:
        return d_mod_k(default, n)
    if rules.rule == RANDOM:
        return below(draws[0], n)
    if rules.rule == DRILL:
        return drill(loads, n, draws[:DRAWS])
    if rules.rule == TTC:
        return ttc(loads, default, draws[0], rules.delta, rules.ties_redirect)
    return shortest(loads, draws[0])


class UpwardChoices(NamedTuple):
    """Decisions on the way up, counted in place.

    made, redirected: by layer, 0 to n-1: all, and those for another up-port than D-mod-k's.
    over_top, kept: of one element: what went over the top layer, and what of it was redirected
        nowhere on its way.
    """

    made: Ints
    redirected: Ints
    over_top: Ints
    kept: Ints

    def figures(self) -> dict[str, float | None]:
        """The columns about redirection: fractions of decisions by layer, and of what goes over the
        top layer.
        """
        made, other = self.made.tolist(), self.redirected.tolist()
        return {
            **{
                f"up{at}_redirected_fraction": other[at] / made[at] if made[at] else None
                for at in range(1, len(made))
            },
            "default_path_fraction": int(self.kept[0]) / int(self.over_top[0])
            if self.over_top[0]
            else None,
        }


def no_choices(ft: LayeredTreeShape) -> UpwardChoices:
    """Nothing counted yet."""
    return UpwardChoices(*(np.zeros(size, np.int64) for size in (ft.n, ft.n, 1, 1)))
