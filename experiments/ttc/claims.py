"""Claims of TTC, in the order of its sections; what it does not measure comes last."""

from __future__ import annotations

from weft.experiments.report.claims import AtLeast, Claim, Form, NotComparable, Query, Where, Within

TTC = {"scheme": "ttc:delta=2"}
FT = "fattree:n=3,d=8"


def flows(scheme: str) -> Where:
    """Return the cell of figure 4 that README and the claims show."""
    return {"topology": FT, "traffic": "random", "scheme": scheme, "k": 8}


def packets(scheme: str) -> Where:
    return {"scheme": scheme, "load_fraction": 0.95}


ON_FABRIC: Where = {"topology": "clos:n=4,r=2,m=4", "traffic": "cross", "clock": "virtual"}
CLAIMS = (
    *(
        Claim(
            f"flows on the most loaded link of FT(3,{d}), adversarial permutation: {name}",
            "section 2.1",
            paper,
            Query(
                "ttc_flow",
                {
                    "topology": f"fattree:n=3,d={d}",
                    "traffic": "adversarial",
                    "scheme": scheme,
                    "k": 1,
                },
                "max_load_flows",
            ),
            rule,
            why,
        )
        for d in (8, 16)
        for name, scheme, paper, rule, why in (
            ("D-mod-k", "dmodk", "many", AtLeast(d), ""),
            ("TTC", "ttc:delta=2", "", NotComparable(), "The paper gives no value for TTC."),
        )
    ),
    Claim(
        "flows that keep to D-mod-k's path without a threshold, FT(3,8), k = 8",
        "section 3",
        25,
        Query("ttc_flow", flows("ttc:delta=0"), "default_path_fraction", form=Form.PERCENT),
        Within(0.1),
        "With strict comparison ties stay on the path; redirected ties leave it.",
    ),
    *(
        Claim(
            f"estimate of the most loaded link, k + ln ln N / ln 2 + Δ, FT(3,8), k = {k}",
            "section 4.1, table 1",
            "",
            Query("ttc_flow", {**flows("ttc:delta=sqrt"), "k": k}, column),
            why="Equations (4) and (5) are lost in the text; the estimate is our reconstruction.",
        )
        for k in (1, 8, 32)
        for column in ("estimate_flows",)
    ),
    *(
        Claim(
            f"flows on the most loaded link, FT(3,8), k = 8: {name}",
            "section 4.1, figure 4",
            "",
            Query("ttc_flow", flows(scheme), "max_load_flows"),
            why="The paper's values are in a plot alone, and its networks' names are lost.",
        )
        for name, scheme in (("TTC", "ttc:delta=2"), ("D-mod-k", "dmodk"), ("VLB", "vlb"))
    ),
    *(
        Claim(
            f"... {name} over TTC",
            "section 4.1, figure 4",
            "above 1",
            Query("ttc_flow", flows(scheme), "max_load_flows", TTC),
            AtLeast(1),
        )
        for name, scheme in (("D-mod-k", "dmodk"), ("VLB", "vlb"))
    ),
    *(
        Claim(
            f"mean queue at load 0.95, {words}: {name}",
            "section 4.2, figure 5",
            "",
            Query("ttc_packet", packets(scheme), f"{layer}_mean_queue_packets"),
            why="The paper's values are in a plot alone.",
        )
        for words, layer in (("up layer 1", "up1"), ("down layer 1", "down1"))
        for name, scheme in (
            ("TTC", "ttc:delta=2"),
            ("D-mod-k", "dmodk"),
            ("Micro", "micro"),
            ("VLB", "vlb"),
        )
    ),
    *(
        Claim(
            f"mean latency at load 0.95: {name}",
            "section 4.2, figure 6",
            "",
            Query("ttc_packet", packets(scheme), "mean_latency_slots"),
            why="The paper's values are in a plot alone.",
        )
        for name, scheme in (
            ("TTC", "ttc:delta=2"),
            ("D-mod-k", "dmodk"),
            ("Micro", "micro"),
            ("VLB", "vlb"),
        )
    ),
    *(
        Claim(
            f"mean latency at load 0.95: {name} over TTC",
            "section 4.2, figure 6",
            "above 1",
            Query("ttc_packet", packets(scheme), "mean_latency_slots", TTC),
            AtLeast(1),
            in_readme=True,
        )
        for name, scheme in (("D-mod-k", "dmodk"), ("Micro", "micro"), ("VLB", "vlb"))
    ),
    *(
        Claim(
            f"exponent of the doubly exponential tail, load {load}, Δ = 2",
            "theorem 5.2",
            "doubly exponential",
            Query("ttc_theory", {"load_fraction": load, "delta": 2}, "measured_z"),
            review="The theorem has no value; ours is that of our own limit, not of a simulation.",
        )
        for load in (0.5, 0.95)
    ),
    *(
        Claim(
            f"mean queueing on Linux, k = 4, 80 % load, 1 Gbit/s: {name}",
            "not in the paper",
            "",
            Query(
                "ttc_kernel",
                {
                    "topology": "fattree:k=4",
                    "scheme": scheme,
                    "traffic": "udp:load=80",
                    "clock": "virtual",
                },
                column,
                seeds=10,
            ),
        )
        for name, scheme, column in (
            ("TTC", "ttc", "delay_mean_slots"),
            ("TTC, by the model", "ttc", "model_delay_mean_slots"),
            ("D-mod-k", "dmodk", "delay_mean_slots"),
            ("D-mod-k, by the model", "dmodk", "model_delay_mean_slots"),
        )
    ),
    *(
        Claim(
            f"goodput of TCP on a Clos of 2 x 4 hosts at 1 Gbit/s, of the ideal: {name}",
            "not in the paper",
            "",
            Query(
                "fabric_gain",
                {**ON_FABRIC, "scheme": scheme},
                "goodput_fraction",
                form=Form.PERCENT,
                seeds=10,
            ),
            in_readme=True,
        )
        for name, scheme in (("ECMP", "ecmp"), ("TTC", "ttc"), ("DRILL", "drill"))
    ),
)
