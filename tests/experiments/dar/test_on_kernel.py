"""DAR's experiments on the kernel: who sends to whom, what is refused, and a small run of each."""

from collections import Counter

import numpy as np
import pytest
from matplotlib.figure import Figure

from weft.experiments.dar import clos_run, dar_goodput
from weft.experiments.runner.definition import Run
from weft.topologies import build

SMALL = {"topology": "clos:n=3,r=3,m=3", "rate_mbps": 5}


def one(experiment, engine="kernel", **instead):
    """A run of `experiment` with the first value of everything else."""
    first = {key: values[0] for key, values in experiment.sweep.items()}
    return Run(
        experiment=experiment.name,
        version=experiment.version,
        parameters={**first, **instead},
        seed=1,
        engine=engine,
    )


@pytest.mark.parametrize("spec", ["clos:n=8,r=8,m=8", "clos:n=4,r=3,m=4", "clos:n=2,r=5,m=2"])
@pytest.mark.parametrize("seed", range(3))
def test_a_worst_permutation_sends_a_leafs_flows_to_different_leaves(spec, seed):
    topology = build(spec)
    r, n = topology.naming.layout.radices
    chosen = clos_run.worst_permutation(np.random.default_rng(seed), topology)
    assert (
        sorted(src for src, _ in chosen) == sorted(dst for _, dst in chosen) == list(range(n * r))
    )
    for leaf in range(r):
        outputs = Counter(dst // n for src, dst in chosen if src // n == leaf)
        assert leaf not in outputs
        assert max(outputs.values()) <= -(-n // (r - 1))


def test_local_orders_differ():
    topology = build("clos:n=8,r=8,m=8")
    chosen = dict(clos_run.worst_permutation(np.random.default_rng(0), topology))
    orders = {
        tuple((chosen[8 * leaf + host] // 8 - leaf) % 8 for host in range(8)) for leaf in range(8)
    }
    assert len(orders) == 8


def test_a_period_lasts_sixteen_packet_times_unless_it_is_said():
    assert (
        clos_run.scheme_of("dar:informed=1", 20_000_000)
        == "dar:period_us=9690,active_us=50000,rest_us=9690,informed=1"
    )
    slow = "dar:period_us=38758,active_us=193790,rest_us=38758"
    assert clos_run.scheme_of("dar", 5_000_000) == slow
    assert (
        clos_run.scheme_of("dar:period_us=7000", 5_000_000)
        == "dar:period_us=7000,active_us=50000,rest_us=7000"
    )
    assert clos_run.scheme_of("ttc:delta=3", 5_000_000) == "ttc:delta=3"
    assert clos_run.rule_of("dar:period_us=7000,detect=queue") == "dar:detect=queue"
    assert clos_run.rule_of("central") == "dar:elephant_kb=0"


@pytest.mark.parametrize(
    ("experiment", "instead", "says"),
    [
        (dar_goodput.GOODPUT, {"topology": "fattree:k=4"}, "folded Clos networks of two tiers"),
        (dar_goodput.GOODPUT, {"scheme": "lbsp"}, "LBSP needs a fat-tree"),
        (dar_goodput.GOODPUT, {"scheme": "dar:p=1", "topology": "clos:n=8,r=8,m=4"}, "take m >= 8"),
        (dar_goodput.GOODPUT, {"scheme": "ecmp", "engine": "fabric"}, "only dar has daemons"),
        (dar_goodput.FAILURE, {"topology": "clos:n=8,r=8,m=3"}, "take m >= 4"),
    ],
)
def test_what_does_not_go_together_is_refused(experiment, instead, says):
    with pytest.raises(ValueError, match=says):
        experiment.check(one(experiment, **instead))


def test_schemes_that_there_are_not_are_refused():
    for text, check in (("darr", clos_run.check_scheme), ("ttc", dar_goodput.check_scheme)):
        with pytest.raises(ValueError, match="dar"):
            check(text)
    clos_run.check_scheme("central")


def test_the_daemons_settle_in_simulated_time():
    run = one(dar_goodput.GOODPUT, engine="fabric", scheme="dar", warm_up_s=1, seconds=1)
    found = dar_goodput.measure(run).figures
    assert found["most_flows"] <= 2
    assert found["late_moves"] == found["replaced"] == 0
    assert 0 < found["moves_per_flow"] < 0.5
    assert 0 < found["settled_ms"] < 500


def test_figures_are_drawn():
    common = {"engine": "kernel", "fidelity": "PASS", "seed": 0, "transport": "tcp"}
    first = {key: values[0] for key, values in dar_goodput.GOODPUT.sweep.items()}
    shown = dict.fromkeys(dar_goodput.GOODPUT.plot.columns, 0.5)
    rows = [{**first, **common, **shown, "scheme": name} for name in ("dar", "central")]
    figure = Figure()
    dar_goodput.GOODPUT.plot(rows, figure)
    assert sum(len(part.axes) for part in figure.subfigs) == 4
    first = {key: values[0] for key, values in dar_goodput.FAILURE.sweep.items()}
    figure = Figure()
    times = {"off_dead_ms": 10.0, "settled_ms": 20.0, "failure": "spine"}
    dar_goodput.FAILURE.plot([{**first, **common, **times}], figure)
    assert sum(len(part.axes) for part in figure.subfigs) == 2


def test_links_of_a_leaf_that_lost_one_may_carry_an_even_share():
    topology = build("clos:n=8,r=8,m=8")
    leaf, spine = topology.servers, topology.servers + 8
    most = dar_goodput.flows_of_links(topology, 1, {(leaf, spine), (spine, leaf)})
    assert most[leaf, spine + 1] == most[spine + 1, leaf] == 2
    assert most[leaf + 1, spine + 1] == 1


@pytest.mark.kernel
@pytest.mark.parametrize("scheme", ["dar", "central", "ecmp"])
def test_a_small_run_of_goodput(scheme):
    run = one(dar_goodput.GOODPUT, scheme=scheme, warm_up_s=1, seconds=1, **SMALL)
    result = dar_goodput.measure(run)
    assert 0 < result.figures["slowest_fraction"] <= result.figures["goodput_fraction"] <= 1.05
    assert (result.figures["requests"] is None) == (scheme != "dar")
    assert result.figures["most_flows"] == {"ecmp": None, "central": 1}.get(
        scheme, result.figures["most_flows"]
    )


@pytest.mark.kernel
def test_a_small_run_of_failure():
    figures = dar_goodput.measure_failure(
        one(dar_goodput.FAILURE, failure="spine", before_s=1, after_s=2, **SMALL)
    ).figures
    assert figures["most_flows"] <= 2
    assert figures["replaced"] >= figures["flows_hit"] > 0
    assert figures["off_dead_ms"] <= figures["settled_ms"]
