"""Claims of TTC, in the order of its sections; what it does not measure comes last."""

from __future__ import annotations

from weft.experiments.report.claims import AtLeast, Claim, Form, Query, Where, Within

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
            f"flows on the fullest link, FT(3,8), k = 8: {name}",
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
            f"mean latency at load 0.95: {name}",
            "section 4.2, figure 6",
            "",
            Query("ttc_packet", packets(scheme), "mean_latency_slots"),
            why="The paper's values are in a plot alone.",
            in_readme=True,
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
            f"... {name} over TTC",
            "section 4.2, figure 6",
            "above 1",
            Query("ttc_packet", packets(scheme), "mean_latency_slots", TTC),
            AtLeast(1),
        )
        for name, scheme in (("D-mod-k", "dmodk"), ("Micro", "micro"), ("VLB", "vlb"))
    ),
    *(
        Claim(
            f"exponent of the doubly exponential tail, load {load}, Δ = 2",
            "theorem 5.2",
            1.466,
            Query("ttc_theory", {"load_fraction": load, "delta": 2}, "measured_z"),
            Within(0.01),
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
