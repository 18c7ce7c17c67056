"""One measurement on a network in the kernel, with the verdict on its fidelity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.experiments.runner.definition import Result, Run, Value
from weft.topologies import build
from weft.topologies.core.link import LinkSpec

if TYPE_CHECKING:
    from weft.testbed.mininet.net import Net


def measured(
    run: Run,
    measure: Callable[[Net], dict[str, Value]],
    *,
    routing: str | None = None,
    link: LinkSpec | None = None,
) -> Result:
    """Bring up the network of `run`, call `measure`, and return its figures with the fidelity.

    Args:
        run: run of an experiment on the kernel.
        measure: returns the figures of the network.
        routing: scheme of the daemons; that of `run` if None.
        link: every link; without rate and delay if None.
    """
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.mininet.net import Net

    net = Net(
        build(run.text("topology")),
        link=link,
        routing=routing or run.text("routing"),
        packed=run.integer("processes"),
    )
    with net, Fidelity(net) as fidelity:
        figures = measure(net)
    report = fidelity.report
    return Result(
        figures=figures,
        fidelity=report.verdict,
        circumstances={"fidelity_report": report.as_dict()},
    )
