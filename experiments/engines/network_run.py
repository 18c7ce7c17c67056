"""A network in the kernel for one measurement, with the verdict on its fidelity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.experiments.runner.definition import Result, Row, Run
from weft.testbed.measure.fidelity import Fidelity
from weft.testbed.network.network import RunningNetwork
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology


@contextmanager
def running(
    topology: Topology, link: LinkSpec | None, scheme: str, **options: Any
) -> Iterator[RunningNetwork]:
    """Bring up a network with `options` of RunningNetwork.create() for the length of a `with`."""
    network = RunningNetwork.create(topology, link, scheme=scheme, **options)
    try:
        yield network
    finally:
        network.down()


def measured(
    run: Run,
    measure: Callable[[RunningNetwork], Row],
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
    topology, scheme = run.topology, routing or run.text("routing")
    with (
        running(topology, link, scheme, packed=run.integer("processes")) as network,
        Fidelity(network) as fidelity,
    ):
        figures = measure(network)
    report = fidelity.report
    return Result(
        figures=figures,
        fidelity=report.verdict,
        circumstances={"fidelity_report": report.as_dict()},
    )
