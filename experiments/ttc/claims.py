"""Claims of TTC, in the order of its sections; our own results come last."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from weft.experiments.report.claims import (
    OURS,
    Claim,
    Form,
    Query,
    Statement,
    Where,
    above,
    at_least,
    at_most,
    below,
    between,
)
from weft.experiments.runner.definition import Row

TTC = {"scheme": "ttc:delta=2"}
TTC_FLOWS = {"scheme": "ttc:delta=sqrt"}
FT = "fattree:n=3,d=8"
TREES = (FT, "fattree:n=3,d=16")
EACH_K = (1, 2, 4, 8, 16, 32)
NAMES = {
    "ttc:delta=2": "TTC",
    "ttc:delta=0": "TTC with Δ = 0",
    "dmodk": "D-mod-k",
    "micro": "Micro",
    "vlb": "VLB",
}
FLOWS = "two fat-trees, whose names our copy lacks; mean of 200 experiments; k from 1"
PACKETS = "two fat-trees, whose names our copy lacks; permutations, last 500 slots"
OUR_FLOWS = (
    "FT(3,8) and FT(3,16), k = 1 to 32, mean of 200 experiments, Δ = √k, rounded, which is ours: "
    "equation (4) is lost"
)
SUBSTANTIAL = at_least(1.1)  # "substantially", "significant": ten per cent
WITHOUT_TTC = "FT(3,8), load 0.95, last 500 of 2,000 slots"
OUR_PACKETS = WITHOUT_TTC + ", Δ = 2, which is ours: equation (7) is lost"
A_TENTH = "; 'substantially' and 'significant' as a tenth"
LOST = "The number is lost in our copy of the paper."
OUR_ESTIMATE = "estimate k + ln ln N / ln 2 + Δ, with Δ = √k, rounded"
ESTIMATE_LOST = "Equations (4) and (5) are lost in our copy; the estimate is our reconstruction."
DISJOINT = Statement(
    "theorem 2.1",
    "D-mod-k guarantees link-disjoint downward paths for pairs with different destinations in a "
    "fat-tree network.",
    "law",
    "all fat-trees",
)
UPLINKS = Statement(
    "section 2.1",
    "there exist certain permutation patterns … such that about … pairs use the same links under "
    "any deterministic routing scheme … D-mod-k routing may induce heavy uplink congestion. To "
    "address this, we introduce randomized uplink-load balancing",
    "law",
    "fat-trees, some permutation",
)
QUARTER = Statement(
    "section 3",
    "in a typical three-layer fat-tree network …, only about 25 percent of traffic is routed to "
    "D-mod-k paths",
    "number",
    "an estimate: two choices whose loads are independent and equally distributed",
)
NO_GAIN = Statement(
    "section 3",
    "We shall numerically show later that direct incorporation of the two-choice technique into "
    "D-mod-k scheme fails to improve the routing performance over D-mod-k.",
    "order",
    FLOWS,
)
BEST = Statement(
    "section 4.1, figure 4",
    "Fig. 4 shows DRB with threshold achieves the best flow-path allocation with a significant "
    "performance improvement over Micro, VLB, and DRB with …",
    "order",
    FLOWS,
)
VARIANCE = Statement(
    "section 4.1, figure 4",
    "the variance of the maximum link load over the 200 experiments is small",
    "law",
    FLOWS,
)
ACCURATE = Statement(
    "section 4.1, table 1",
    "Results in … show that the heuristic estimation is accurate.",
    "law",
    FLOWS,
)
LIMITED = Statement(
    "section 4.1, table 1",
    "the number of redirected flows is greatly limited by an appropriate setting of the threshold",
    "order",
    FLOWS,
)
LARGER_ERROR = Statement(
    "section 4.1, table 1",
    "[the relative error of one fat-tree] is slightly larger than that of [the other] … Therefore, "
    "the estimation is more accurate when [d] is larger.",
    "order",
    FLOWS,
)
LIKE_BALLS = Statement(
    "section 4.1, table 1",
    "the performance of DRB for flow-routing in fat-tree networks is similar to the performance of "
    "the two-choice technique for balanced allocation in the balls-into-bins problem",
    "law",
    FLOWS,
)
BALANCED = Statement(
    "section 4.2, figure 5",
    "DRB effectively balances both uplink and downlink loads, whereas Micro can balance uplink "
    "loads and D-mod-k can only balance downlink loads only.",
    "order",
    PACKETS,
)
LATENCY = Statement(
    "section 4.2, figure 6",
    "packets routed by the DRB scheme suffer substantially lower average and tail packet latency "
    "especially in the heavy-traffic scenarios",
    "order",
    PACKETS,
)
THRESHOLD = Statement(
    "section 4.2, figure 6",
    "By comparing the performance of DRB with threshold and DRB with … in Fig. 6, we can observe "
    "that the proposed threshold setting yields a significant performance improvement.",
    "order",
    PACKETS,
)
RECURRENT = Statement(
    "theorem 5.1",
    "The CTMC … is irreducible, nonexplosive, and positive recurrent.",
    "law",
    "all loads below 1",
)
FIXED_POINT = Statement(
    "section 5.2",
    "the equilibrium solution can be well approximated by the fixed point solution",
    "law",
    "many queues, Poisson arrivals",
)
DOUBLY = Statement(
    "theorem 5.2",
    "The fixed-point solution of equation (9) … decays doubly exponentially.",
    "law",
    "all loads below 1 and all thresholds",
)
LAYERS = Statement(
    "section 5.4",
    "the numerical results in Fig. 5 also show that average and maximum queue lengths of uplinks "
    "at different layers are roughly the same",
    "law",
    PACKETS,
)


def of_experiments(row: Row, column: str) -> float:
    """Return the standard error of a row's most loaded link, from its experiments."""
    return float(row["max_load_sd_flows"] / math.sqrt(row["repetitions"]))


def loads(where: Where, column: str, **more: Any) -> Query:
    """Return a figure of figure 4; of the most loaded link, means of experiments are compared."""
    error = of_experiments if column == "max_load_flows" else None
    return Query("ttc_flow", where, column, error=error, **more)


def flows(
    scheme: str, column: str = "max_load_flows", k: int = 8, repetitions: int = 200, **more: Any
) -> Query:
    """Return a figure of figure 4: k flows of each host."""
    where = {"topology": FT, "traffic": "random", "scheme": scheme, "k": k}
    return loads({**where, "repetitions": repetitions}, column, **more)


def extreme(
    statistic: Any, scheme: str | tuple[str, ...], column: str = "max_load_flows", **more: Any
) -> Query:
    """Return an extreme of a figure of figure 4 over both fat-trees and all k."""
    where = {"topology": TREES, "traffic": "random", "scheme": scheme, "k": EACH_K}
    return loads(where, column, statistic=statistic, **more)


def redirected(scheme: str) -> Query:
    """Return the flows that leave D-mod-k's path, for both fat-trees and all k."""
    return extreme(min, scheme, "default_path_fraction", form=Form.SAVING)


def error_of_estimate(**more: Any) -> Query:
    """Return by how much the estimate of the most loaded link is above the measured one."""
    where = {"traffic": "random", **TTC_FLOWS, "k": 8, **more}
    return Query("ttc_flow", where, "estimate_flows", by="max_load_flows", form=Form.GAIN)


def adversarial(scheme: str, column: str, d: int, **more: Any) -> Query:
    """Return a figure of the permutation that loads D-mod-k's uplinks most."""
    topology = f"fattree:n=3,d={d}"
    where = {"topology": topology, "traffic": "adversarial", "scheme": scheme, "k": 1}
    return loads(where, column, **more)


def downlinks(layer: int) -> Query:
    """Return the flows on the fullest downlink of a layer under D-mod-k, over permutations."""
    where = {"topology": TREES, "traffic": ("random", "adversarial")}
    column = f"down{layer}_max_load_flows"
    return Query("ttc_flow", {**where, "scheme": "dmodk", "k": 1}, column, statistic=max)


def packets(scheme: str, column: str, load: float = 0.95, d: int = 8, **more: Any) -> Query:
    """Return a figure of figures 5 and 6."""
    where = {"topology": f"fattree:n=3,d={d}", "scheme": scheme, "load_fraction": load}
    return Query("ttc_packet", where, column, **more)


EVERYWHERE = "minimum over FT(3,8), FT(3,16) and k = 1 to 32"
ALL_SCHEMES = (*NAMES, "ttc:delta=sqrt")
LEAST = flows("ttc:delta=0", k=1, over=TTC_FLOWS, repetitions=1000)
OUR_LEAST = (
    "mean of 1,000 experiments; Δ = 1, which is ours: equation (4) is lost; with Δ = 2 it is 1.0"
    + A_TENTH
)
MODEL = (
    *(
        Claim(
            f"flows on the fullest {words} downlink, permutations, maximum over FT(3,8) and "
            "FT(3,16): D-mod-k",
            DISJOINT,
            1,
            downlinks(layer),
            between(1, 1),
            "200 random permutations, and that which loads uplinks most",
        )
        for words, layer in (("first", 1), ("second", 2))
    ),
    *(
        Claim(
            f"flows on the most loaded link, some permutation, FT(3,{d}): D-mod-k",
            UPLINKS,
            "the number is lost",
            adversarial("dmodk", "max_load_flows", d),
            ours="a permutation that transposes the matrix of hosts; 2d - 1, the most that one can "
            "have",
            apart=LOST,
        )
        for d in (8, 16)
    ),
    *(
        Claim(
            f"flows on the most loaded link, same permutation, FT(3,{d}): D-mod-k over TTC",
            UPLINKS,
            "above 1",
            adversarial("dmodk", "max_load_flows", d, over=TTC),
            above(1),
            "a permutation that transposes the matrix of hosts, Δ = 2, mean of 200",
        )
        for d in (8, 16)
    ),
    *(
        Claim(
            f"flows that keep to D-mod-k's path, two choices without a threshold, {words}, FT(3,8)",
            QUARTER,
            25,
            flows(scheme, "default_path_fraction", form=Form.PERCENT),
            ours=f"k = 8, mean of 200 experiments; {leave} leave at each switch",
            apart="The paper's number is that of independent loads. Ours depends on ties and on k: "
            "if ties are kept, a fifth to a third leave at each switch, else two thirds or more.",
        )
        for words, scheme, leave in (
            ("ties kept", "ttc:delta=0", "30 to 31 %"),
            ("ties redirected", "ttc:delta=0,tie=redirect", "69 %"),
        )
    ),
    *(
        Claim(
            f"flows on the most loaded link, FT(3,8): TTC with Δ = 0, {words}, over D-mod-k",
            NO_GAIN,
            "at least 1",
            flows(scheme, over={"scheme": "dmodk"}),
            at_least(1),
            "k = 8, mean of 200 experiments; over FT(3,8), FT(3,16) and k = 1 to 32 it is "
            + spread,
            why_less=why,
            otherwise=flows(scheme, k=1, over={"scheme": "dmodk"}) if turns else None,
            unnamed="in our copy for which networks and k" * turns,
        )
        for words, scheme, spread, why, turns in (
            (
                "ties kept",
                "ttc:delta=0",
                "0.80 to 0.93",
                "With the paper's strict comparison a tie stays on D-mod-k's path, so half of the "
                "flows keep it. With ties redirected a tenth keep it, and the gain goes.",
                False,
            ),
            (
                "ties redirected",
                "ttc:delta=0,tie=redirect",
                "0.98 to 1.01, here then k = 1; at k = 8 uplinks fall from 17.5 to 10.0 flows, "
                "downlinks rise from 8 to 17.2",
                "The load moves from uplinks to downlinks. A tenth of the flows keep D-mod-k's "
                "path still; under Micro hardly any do, and its load is D-mod-k's.",
                True,
            ),
        )
    ),
    *(
        Claim(
            f"flows on the most loaded link, {where}: {NAMES[scheme]} over TTC",
            BEST,
            "significantly more" if scheme != "dmodk" else "above 1",
            query,
            SUBSTANTIAL if scheme != "dmodk" else above(1),
            ours,
        )
        for scheme, where, query, ours in (
            ("micro", EVERYWHERE, extreme(min, "micro", over=TTC_FLOWS), OUR_FLOWS + A_TENTH),
            ("vlb", EVERYWHERE, extreme(min, "vlb", over=TTC_FLOWS), OUR_FLOWS + A_TENTH),
            ("ttc:delta=0", "FT(3,8), k = 1, the least of all sizes", LEAST, OUR_LEAST),
            ("dmodk", EVERYWHERE, extreme(min, "dmodk", over=TTC_FLOWS), OUR_FLOWS),
        )
    ),
    Claim(
        "standard deviation of the maximum link load over its mean, maximum over all schemes, "
        "FT(3,8), FT(3,16) and k = 1 to 32",
        VARIANCE,
        "small",
        extreme(max, ALL_SCHEMES, "max_load_sd_flows", by="max_load_flows", form=Form.PERCENT),
        at_most(20),
        "TTC with Δ = √k and 2 and the schemes beside it; 'small' as a fifth",
    ),
    *(
        Claim(
            f"estimate of the most loaded link above the measured one, FT(3,8), k = {k}",
            ACCURATE,
            "accurate",
            error_of_estimate(topology=FT, k=k),
            ours=OUR_ESTIMATE,
            apart=ESTIMATE_LOST,
        )
        for k in (1, 8, 32)
    ),
    Claim(
        "error of the estimate, k = 8, FT(3,8) over FT(3,16)",
        LARGER_ERROR,
        "above 1",
        replace(error_of_estimate(topology=TREES[0]), per=error_of_estimate(topology=TREES[1])),
        ours=OUR_ESTIMATE,
        apart=ESTIMATE_LOST,
    ),
    Claim(
        "flows on TTC's most loaded link over balls in the fullest bin, two choices, maximum over "
        "FT(3,8), FT(3,16) and k = 1 to 32",
        LIKE_BALLS,
        "similar",
        extreme(max, "ttc:delta=sqrt", over={"scheme": "balls"}),
        at_most(1.5),
        OUR_FLOWS + "; k N balls into N bins, N the hosts; 'similar' as up to half as much "
        "again; at k = 32 it is 1.1 to 1.2",
    ),
    Claim(
        "flows over the core that leave D-mod-k's path, minimum over FT(3,8), FT(3,16) and k = 1 "
        "to 32: TTC with Δ = 0 over TTC",
        LIMITED,
        "greatly limited",
        replace(redirected("ttc:delta=0"), per=redirected("ttc:delta=sqrt")),
        at_least(2),
        OUR_FLOWS + "; 'greatly' as half",
    ),
)


def balanced(words: str, statistic: str) -> Iterator[Claim]:
    """Yield the claims on TTC's queues beside those of the better of Micro and D-mod-k."""
    for layer, number in (("first", 1), ("second", 2)):
        for links, column, better in (("uplinks", "up", "micro"), ("downlinks", "down", "dmodk")):
            name = f"{column}{number}_{statistic}_queue_packets"
            yield Claim(
                f"{words} queue of {layer} {links}, FT(3,8): TTC over the better, {NAMES[better]}",
                BALANCED,
                "balanced",
                packets("ttc:delta=2", name, over={"scheme": better}),
                at_most(2),
                OUR_PACKETS + "; 'balanced' as twice the better",
            )


QUEUES = (
    *(
        Claim(
            f"{words} queue of {layer} {links}, FT(3,8): {NAMES[scheme]} over {NAMES[other]}",
            BALANCED,
            paper,
            packets(scheme, f"{column}{number}_{statistic}_queue_packets", over={"scheme": other}),
            rule,
            OUR_PACKETS if "ttc:delta=2" in (scheme, other) else WITHOUT_TTC,
        )
        for words, statistic in (("mean", "mean"), ("longest", "max"))
        for layer, number in (("first", 1), ("second", 2))
        for links, column, scheme, other, paper, rule in (
            ("uplinks", "up", "dmodk", "ttc:delta=2", "above 1", above(1)),
            ("downlinks", "down", "micro", "ttc:delta=2", "above 1", above(1)),
            ("uplinks", "up", "micro", "dmodk", "below 1", below(1)),
            ("downlinks", "down", "dmodk", "micro", "below 1", below(1)),
        )
    ),
    *balanced("mean", "mean"),
    *(
        Claim(
            f"{words} latency, FT(3,8), load 0.95: {NAMES[scheme]} over TTC",
            LATENCY,
            "substantially higher",
            packets(scheme, f"{column}_latency_slots", over=TTC),
            SUBSTANTIAL,
            OUR_PACKETS + A_TENTH,
            in_readme=words == "mean",
        )
        for words, column in (("mean", "mean"), ("tail", "tail"))
        for scheme in ("dmodk", "micro", "vlb")
    ),
    *(
        Claim(
            f"mean latency of {NAMES[scheme]} over TTC, FT(3,8), load 0.95 against load 0.5",
            LATENCY,
            "above 1",
            packets(scheme, "mean_latency_slots", over=TTC, against={"load_fraction": 0.5}),
            above(1),
            OUR_PACKETS,
        )
        for scheme in ("dmodk", "micro", "vlb")
    ),
    *(
        Claim(
            f"{column} latency, FT(3,8), load 0.95: TTC with Δ = 0 over TTC",
            THRESHOLD,
            "significantly higher",
            packets("ttc:delta=0", f"{column}_latency_slots", over=TTC),
            SUBSTANTIAL,
            OUR_PACKETS + A_TENTH + f"; at loads up to {load} Δ = 0 has less",
        )
        for column, load in (("mean", 0.7), ("tail", 0.5))
    ),
    *balanced("longest", "max"),
)
THEORY = (
    Claim(
        "equilibrium of the Markov chain",
        RECURRENT,
        missing="This is a proof; there is nothing to measure.",
    ),
    *(
        Claim(
            f"fraction of queues with i packets or more, simulation against fixed point, load "
            f"{load}",
            FIXED_POINT,
            "well approximated",
            Query("ttc_theory", {"load_fraction": load, "delta": 2}, "worst_error_fraction"),
            at_most(0.02),
            "2,000 queues, Δ = 2, the largest difference over all i with a fraction above 0.00001; "
            "'well' as 0.02",
        )
        for load in (0.5, 0.95)
    ),
    *(
        Claim(
            "factor by which log 1/s_i grows with i at the fixed point, minimum over Δ = 0 to 3, "
            f"load {load}",
            DOUBLY,
            "above 1",
            Query(
                "ttc_theory",
                {"load_fraction": load, "delta": (0, 1, 2, 3)},
                "measured_z",
                statistic=min,
                seeds=1,
            ),
            above(1),
            "loads 0.5 and 0.95, and four thresholds",
        )
        for load in (0.5, 0.95)
    ),
    *(
        Claim(
            f"{words} queue of TTC's uplinks, FT(3,{d}), load {load}: first layer over second",
            LAYERS,
            "roughly 1",
            packets("ttc:delta=2", f"up1_{column}", load, d, by=f"up2_{column}"),
            between(0.9, 1.1),
            OUR_PACKETS.replace("0.95", str(load)).replace("FT(3,8)", f"FT(3,{d})")
            + "; 'roughly' as a tenth"
            + "; then FT(3,24), one seed" * turns,
            why_more="One packet in sixteen stays in its pod, below the second layer, and half as "
            "many on FT(3,16). Where links of both layers carry as much, both queues are alike.",
            otherwise=packets("ttc:delta=2", f"up1_{column}", load, 24, by=f"up2_{column}", seeds=1)
            if turns
            else None,
            unnamed="in our copy how large its networks are" * turns,
        )
        for d in (8, 16)
        for load in (0.5, 0.95)
        for words, column in (("mean", "mean_queue_packets"), ("longest", "max_queue_packets"))
        for turns in (load == 0.95 and words == "mean",)
    ),
    Claim(
        "mean queue of TTC's uplinks, FT(3,8): first layer at load 0.9 over second at load 0.95, "
        "where links carry as much",
        OURS,
        "",
        packets(
            "ttc:delta=2",
            "up1_mean_queue_packets",
            0.9,
            by="up2_mean_queue_packets",
            over={"load_fraction": 0.95},
        ),
        between(0.9, 1.1),
        "0.89 packets a slot on a link; 1 within a tenth: equal loads make equal queues",
    ),
)


def on_linux(scheme: str, column: str, **more: Any) -> Query:
    """Return a figure of UDP on Linux, four ports, 80 % load."""
    where = {"topology": "fattree:k=4", "scheme": scheme, "traffic": "udp:load=80"}
    return Query("ttc_kernel", {**where, "clock": "virtual"}, column, seeds=10, **more)


def over_tcp(scheme: str) -> Query:
    """Return TTC's goodput of TCP on a Clos network by that of another scheme."""
    where = {"topology": "clos:n=4,r=2,m=4", "traffic": "cross", "clock": "virtual"}
    over = {"scheme": scheme}
    return Query("fabric_gain", {**where, "scheme": "ttc"}, "goodput_fraction", over, seeds=10)


UDP = "UDP at 80 % load on Linux, 1 Gbit/s, virtual clock, mean"
LINUX = (
    Claim(
        "queueing on Linux, k = 4: D-mod-k over TTC",
        OURS,
        "",
        on_linux("dmodk", "delay_mean_slots", over={"scheme": "ttc"}),
        above(1),
        UDP,
    ),
    *(
        Claim(
            f"queueing on Linux over that of the slotted model, k = 4: {name}",
            OURS,
            "",
            on_linux(scheme, "delay_mean_slots", by="model_delay_mean_slots"),
            between(0.9, 1.1),
            UDP,
        )
        for name, scheme in (("TTC", "ttc"), ("D-mod-k", "dmodk"))
    ),
    *(
        Claim(
            f"goodput of TCP on Linux, CLOS(4,2,4): TTC over {name}",
            OURS,
            "",
            over_tcp(scheme),
            above(1),
            "permutations across two leaves, 1 Gbit/s, virtual clock",
            in_readme=True,
        )
        for name, scheme in (("ECMP", "ecmp"), ("DRILL", "drill"))
    ),
)
CLAIMS = (*MODEL, *QUEUES, *THEORY, *LINUX)
