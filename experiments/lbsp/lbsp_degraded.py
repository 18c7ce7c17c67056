"""How long do long flows take when one link carries a tenth of its rate?

LBSP, section 4, figure 7c, with the flows of lbsp_long; short flows with a degraded link (figure
7b) are a damage of lbsp_short.  LBSP is told beforehand that the link is degraded and avoids it; no
other scheme is.
"""

from __future__ import annotations

from weft.experiments.lbsp import columns, lbsp_long, lbsp_tcp
from weft.experiments.runner.definition import Experiment, Statement

EXPERIMENT = Experiment(
    name="lbsp_degraded",
    question="How long do long flows take under LBSP, packet scatter and others, when a link is "
    "degraded?",
    source="LBSP, section 4, figure 7c",
    engines=("kernel",),
    axes={
        **lbsp_tcp.LONG_FLOWS,
        "damage": lbsp_tcp.LONG_FLOWS["damage"].over("none", "degraded"),
        "repeats": lbsp_tcp.REPEATS.over(2),
        "patience_s": lbsp_tcp.PATIENCE_S.over(12),
    },
    columns=columns.TIMES,
    statements=[
        Statement(
            says=f"with a degraded link the 99.9th percentile of {name} (figure 7c)",
            paper=paper,
            column="p999_ms",
            cell={"scheme": scheme, "damage": "degraded"},
            over={"damage": "none"},
        )
        for name, scheme, paper in (
            ("packet scatter", "spray", "above 11"),
            ("LBSP", "lbsp", "about 1"),
        )
    ],
    seeds=3,
    version=2,
    takes_s=1700,
    measure=lbsp_long.measure,
    plot=lbsp_tcp.plot,
    check=lbsp_tcp.check,
)
