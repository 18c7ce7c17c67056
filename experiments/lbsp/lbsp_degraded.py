"""How long do long flows take when one link carries a tenth of its rate?

LBSP, section 4, figure 7c, with the flows of lbsp_long; short flows with a degraded link (figure
7b) are a damage of lbsp_short.  LBSP is told beforehand that the link is degraded and avoids it; no
other scheme is.
"""

from __future__ import annotations

from weft.experiments.lbsp import columns, lbsp_long, lbsp_tcp
from weft.experiments.runner.definition import Experiment

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
    seeds=3,
    version=2,
    takes_s=1700,
    measure=lbsp_long.measure,
    plot=lbsp_tcp.plot,
    check=lbsp_tcp.check,
)
