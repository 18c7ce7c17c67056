"""FT(n,d) as arrays for the models of TTC, and the link that a switch takes under each scheme.

All is integers and arrays, and random numbers are arguments, so the same source runs as plain
Python in a test and as machine code in an experiment.  The functions of
daemons/routing/selection.py choose the port.

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
from weft.daemons.core.compiled import allocates_nothing
from weft.daemons.load_balancing.scheme import ChoiceRule
from weft.daemons.routing.selection import below, d_mod_k, drill, shortest, ttc
from weft.experiments.engines.arrays import Ints, int_zeros
from weft.experiments.runner.definition import Run
from weft.topologies import family
from weft.topologies.core.grammar import parse
from weft.topologies.tiered.clos import shape

D_MOD_K, RANDOM = int(ChoiceRule.D_MOD_K), int(ChoiceRule.RANDOM)
DRILL, TTC = int(ChoiceRule.DRILL), int(ChoiceRule.TTC)
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


# Layers of links are up1, up2, ... from the edge switches to the top, down1, down2, ... back, and
# hosts: down to the hosts.
CHOICE_COLUMNS = {
    "up*_redirected_fraction": "choices at switches of that layer that left D-mod-k's port; null "
    "where there were none, and on the kernel under schemes other than TTC",
    "default_path_fraction": "of what goes over the top layer, what keeps to D-mod-k's path",
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
        """Return the names of the layers of links, in the order of their numbers."""
        up = [f"up{layer}" for layer in range(1, self.n)]
        return up + [f"down{layer}" for layer in range(1, self.n)] + ["hosts"]


def fat_tree(run: Run) -> LayeredTreeShape:
    """Return the FT(n,d) of `run`; ValueError if its network is none."""
    name, options = parse(run.text("topology"))
    if name != "fattree":
        raise ValueError(
            f"{run.experiment}: topology must be a fattree, got {run.text('topology')}"
        )
    n, d, pods, hosts = shape(family(name).parameters_from(options))
    if hosts != d or d < 2 or pods != 2 * d:
        raise ValueError(
            f"{run.experiment}: a whole fattree without oversubscription, with k >= 4 or d >= 2"
        )
    return LayeredTreeShape(n, d)


class SchemeRules(NamedTuple):
    """A scheme in the form of the models."""

    rule: int
    delta: int
    ties_redirect: int


def rules(spec: str) -> SchemeRules:
    """Return the scheme that `spec` names, for the models.

    Raises:
        ValueError: the models lack the scheme or one of its parameters.
    """
    name, texts = parse(spec)
    selection, options = registry.data_plane(spec)
    scheme = selection.rule(options)
    if name not in MODELLED:
        raise ValueError(f"the models of TTC have {', '.join(MODELLED)}, and not {name}")
    for key, value in options.items():
        if key not in MODELLED[name] and value:
            known = " and ".join(MODELLED[name]) or "no parameters"
            raise ValueError(
                f"the models of TTC have no {key}={texts.get(key, value)}: of {name} they know "
                f"{known}"
            )
    is_hash = scheme.rule in (ChoiceRule.FLOW_HASH, ChoiceRule.KERNEL)  # as good as random
    rule = ChoiceRule.RANDOM if is_hash else ChoiceRule(scheme.rule)
    return SchemeRules(int(rule), scheme["delta"], scheme["tie"])


class FatTreeLinks(NamedTuple):
    """FT(n,d) as its links, for machine code.

    layer: of each switch.
    block: of each switch: the digits of its code from that of its layer on, which are those of the
        hosts below it; 0 in layer n, which has all hosts below it.
    first_up: first of the d links upwards of each switch.
    down: link at each down-port, shape (switches, 2d).
    block_of: `block` of the switches above each host, by layer, shape (n+1, hosts).
    digit: digit of each host by layer, shape (n+1, hosts): the down-port to it, and the up-port
        that D-mod-k takes.
    entry: switch of each host.
    far: switch at the end of each link, -1 for a host.
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
    """Return the links of `ft`, by equations (1) and (3) of TTC."""
    n, d = ft
    host, width = np.arange(ft.hosts), ft.hosts // d
    switches = (n - 1) * width + width // 2
    layer = np.minimum(np.arange(switches) // width + 1, n)
    within = np.arange(switches) - (layer - 1) * width  # number of a switch within its layer
    block_of, digit = int_zeros(n + 1, ft.hosts), int_zeros(n + 1, ft.hosts)
    for tier in range(1, n + 1):
        block_of[tier] = host // d**tier if tier < n else 0
        digit[tier] = host // d ** (tier - 1) % (d if tier < n else 2 * d)
    far, down = ends_of_links(ft, switches)
    block = np.where(layer < n, within // d ** (layer - 1), 0)
    first_up = (layer - 1) * ft.hosts + within * d
    return FatTreeLinks(n, d, layer, block, first_up, down, block_of, digit, host // d, far)


def ends_of_links(ft: LayeredTreeShape, switches: int) -> tuple[Ints, Ints]:
    """Return `far` and `down` of FatTreeLinks."""
    n, d = ft
    host, hosts, width = np.arange(ft.hosts), ft.hosts, ft.hosts // d
    far, down = np.full(ft.links, -1), np.full((switches, 2 * d), -1)
    down[host // d, host % d] = (2 * n - 2) * hosts + host
    for tier in range(1, n):
        place = d ** (tier - 1)
        lower, up = host // d, host % d
        port = lower // place % (d if tier < n - 1 else 2 * d)
        upper = tier * width + lower + (up - port) * place
        down[upper, port] = (n - 1 + tier - 1) * hosts + host
        far[(tier - 1) * hosts : tier * hosts] = upper
        far[(n - 1 + tier - 1) * hosts : (n - 1 + tier) * hosts] = (tier - 1) * width + lower
    return far, down


@allocates_nothing
def choose(loads: Ints, default: int, draws: Ints, rules: SchemeRules) -> int:
    """Return the up-port for a packet or a flow by the ports' `loads`; `default` is D-mod-k's."""
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

    decisions: all decisions by layer, 0 to n-1.
    redirected: those for another up-port than D-mod-k's.
    over_top: packets or flows over the top layer, an array of one element.
    default_over_top: those of them that took the default at every switch.
    """

    decisions: Ints
    redirected: Ints
    over_top: Ints
    default_over_top: Ints

    def figures(self) -> dict[str, float | None]:
        """Return the columns about redirection."""
        figures: dict[str, float | None] = {}
        for layer in range(1, len(self.decisions)):
            total, redirected = int(self.decisions[layer]), int(self.redirected[layer])
            figures[f"up{layer}_redirected_fraction"] = redirected / total if total else None
        over_top = int(self.over_top[0])
        figures["default_path_fraction"] = (
            int(self.default_over_top[0]) / over_top if over_top else None
        )
        return figures


def no_choices(ft: LayeredTreeShape) -> UpwardChoices:
    """Return counters at zero."""
    return UpwardChoices(*(int_zeros(size) for size in (ft.n, ft.n, 1, 1)))
