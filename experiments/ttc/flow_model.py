"""TTC's flow model (section 4.1): flow after flow gets a path; load is flows on a link."""

from __future__ import annotations

from weft.experiments.engines.arrays import Ints
from weft.experiments.ttc.fat_tree_links import FatTreeLinks, SchemeRules, UpwardChoices, choose


def assign(
    links: FatTreeLinks,
    load: Ints,
    src: Ints,
    dst: Ints,
    draws: Ints,
    rules: SchemeRules,
    choices: UpwardChoices,
) -> None:
    """Assign flow after flow; `load`, shape (links,), is raised by the flows on each link.

    src, dst: shape (flows,).  draws: shape (flows, n-1, 2), 32 bits each.
    """
    for flow in range(len(src)):
        switch, t, strayed = links.entry[src[flow]], dst[flow], 0
        layer = 1
        while links.block_of[layer, t] != links.block[switch]:
            first = links.first_up[switch]
            default = links.digit[layer, t]
            up = choose(load[first : first + links.d], default, draws[flow, layer - 1], rules)
            load[first + up] += 1
            choices.decisions[layer] += 1
            choices.redirected[layer] += up != default
            strayed += up != default
            switch = links.far[first + up]
            layer += 1
        if layer == links.n:
            choices.over_top[0] += 1
            choices.default_over_top[0] += strayed == 0
        while switch >= 0:
            link = links.down[switch, links.digit[layer, t]]
            load[link] += 1
            switch = links.far[link]
            layer -= 1
