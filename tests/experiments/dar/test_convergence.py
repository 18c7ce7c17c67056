"""DAR's models against simulations of their chains, the central optimum against brute force, and
the experiment."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from matplotlib.figure import Figure

from weft.daemons.dar import iteration
from weft.daemons.dar.iteration import IterationRules
from weft.experiments.dar import models, simulation
from weft.experiments.dar.clos_run import assign
from weft.experiments.dar.dar_convergence import EXPERIMENT
from weft.experiments.dar.models import LeafState
from weft.experiments.dar.simulation import ANY, GIVEN, WORST


def near(found: np.ndarray, exact: float) -> bool:
    """Return whether the mean of `found` is within four standard errors of `exact`."""
    return bool(abs(found.mean() - exact) < 4 * found.std(ddof=1) / len(found) ** 0.5)


@pytest.mark.parametrize(("r", "last"), [(4, models.full_rate(4, 4)), (5, models.half_rate(8, 8))])
@pytest.mark.slow
def test_the_lumped_chain_is_that_of_the_bits(r: int, last: models.LastStep) -> None:
    """Every one of the r output leaves is simulated by itself, as in sections 3.2 and 3.3."""
    rng, times = np.random.default_rng(3), []
    for _ in range(3000):
        bad, steps = np.ones(r, bool), 0
        while bad.any():
            fraction = bad.sum() / r
            spoil = fraction * last.spoil
            c_ind = fraction * last.help
            better = last.improve + c_ind - last.improve * c_ind
            bad = np.where(bad, rng.random(r) >= better, rng.random(r) < spoil)
            steps += 1
        times.append(steps)
    assert near(np.array(times), last.iterations(r))


def test_the_last_step_models_have_the_constants_of_the_paper() -> None:
    assert models.full_rate(4, 8) == pytest.approx((1, 5 / 8, 2 / 4 * 5 / 8))
    swaps = 1 - (7 / 8) ** 8 - (7 / 8) ** 7  # P[Bin(8, 1/8) >= 2]
    assert models.half_rate(8, 8) == pytest.approx(
        (swaps * 3 / 8, 1 - 2 / 8, swaps * 3 / 8 * 6 / 8)
    )
    with pytest.raises(ValueError, match="n >= 4"):
        models.half_rate(3, 3)


def thrown(rng: np.random.Generator, n: int, m: int) -> LeafState:
    """The state that n flows on random ones of m links make."""
    load = np.bincount(rng.integers(m, size=n), minlength=m)
    return LeafState(int((load == 0).sum()), int((load == 1).sum()))


def simulate_single(rng: np.random.Generator, n: int, m: int) -> int:
    """Iterations of model 3.1, by flows that are thrown one after the other as table 1 says."""
    (empty, good), steps = thrown(rng, n, m), 0
    while empty + good < m:
        for forced in (False, True):
            bad, flows = m - empty - good, n - good
            if (forced and not bad) or (not forced and rng.random() >= n / m):
                continue
            of_bad = forced or rng.random() < flows / n
            many = flows / bad > (2 if forced else 2.5) if bad else False
            to = rng.integers(m)
            if not of_bad:  # the flow's own link is the first of the good ones
                if empty < to < empty + good:
                    empty, good = empty + 1, good - 2
                elif to >= empty + good:
                    empty, good = empty + 1, good - 1
            elif to < empty:
                empty, good = empty - 1, good + (1 if many else 2)
            elif to < empty + good:
                good -= many
            elif to > empty + good and not many:  # the first bad link is the one that it leaves
                good += 1
        steps += 1
    return steps


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 5), (6, 12), (6, 9)])
def test_the_chain_of_one_output_is_that_of_table_1(n: int, m: int) -> None:
    rng = np.random.default_rng(5)
    found = np.array([simulate_single(rng, n, m) for _ in range(4000)])
    assert near(found, models.single_output(n, m))


@pytest.mark.parametrize(("n", "m"), [(4, 4), (4, 6), (4, 5)])
def test_flows_begin_as_if_thrown(n: int, m: int) -> None:
    """The probability of every state, by all ways to throw."""
    ways: Counter[LeafState] = Counter()
    for throw in product(range(m), repeat=n):
        load = np.bincount(throw, minlength=m)
        ways[LeafState(int((load == 0).sum()), int((load == 1).sum()))] += 1
    for state, count in ways.items():
        assert models.random_start(state, n, m) == pytest.approx(float(Fraction(count, m**n)))


@pytest.mark.parametrize(("n", "r", "m"), [(2, 2, 1), (2, 2, 2), (2, 3, 2), (3, 2, 2), (2, 3, 3)])
def test_the_central_optimum_is_that_of_brute_force(n: int, r: int, m: int) -> None:
    """On permutations, and on the same with flows missing."""
    rng = np.random.default_rng(1)
    for kept in (n * r, n * r, n * r - 1, n * r // 2):
        edges = [(src // n, int(dst) // n) for src, dst in enumerate(rng.permutation(n * r))][:kept]
        best = min(fullest(edges, spines) for spines in product(range(m), repeat=kept))
        assert fullest(edges, assign(edges, m)) == best


def fullest(edges: list[tuple[int, int]], spines: object) -> int:
    """The most flows on a link."""
    loads = Counter[tuple[bool, int, int]]()
    for ends, spine in zip(edges, spines, strict=True):  # type: ignore[call-overload]
        loads.update((side, ends[side], spine) for side in (False, True))
    return max(loads.values(), default=0)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_central_optimum_needs_no_more_than_p_flows_a_link(p: int) -> None:
    rng, n, r = np.random.default_rng(2), 12, 9
    for _ in range(20):
        edges = [(src // n, int(dst) // n) for src, dst in enumerate(rng.permutation(n * r))]
        spines = assign(edges, n // p)
        assert set(spines) <= set(range(n // p))
        assert fullest(edges, spines) == p


def test_permutations_are_permutations_and_the_worst_ones_spread() -> None:
    state = np.array([1, 2, 3, 4])
    for n, r in ((4, 4), (3, 7), (6, 3)):
        net = simulation.network(n, r, n)
        for traffic in (WORST, ANY, GIVEN):
            simulation.permute(net, traffic, state)
            assert sorted(net.destination) == list(range(n * r))
            assert [net.destination[flow] for flow in net.source] == list(range(n * r))
            if traffic == WORST:
                for leaf in range(r):
                    outputs = [net.destination[flow] // n for flow in range(leaf * n, leaf * n + n)]
                    assert len(set(outputs)) == min(n, r)


def mean(n: int, p: int, **options: int) -> np.ndarray:
    """Iterations of 600 permutations on CLOS(n,n,n), by machine code."""
    rng = np.random.default_rng(4)
    rules = IterationRules(p=p, **options)
    return simulation.simulate(
        simulation.network(n, n, n), rules, WORST, 600, rng, most=10**6
    ).iterations


@pytest.mark.slow
def test_machine_code_draws_what_python_does() -> None:
    net, rules = simulation.network(4, 4, 4), IterationRules()
    fast = simulation.simulate(net, rules, WORST, 20, np.random.default_rng(6), most=10**6)
    slow = simulation.PermutationOutcome(
        np.zeros(20, np.int64), np.zeros((20, iteration.COUNTERS), np.int64)
    )
    # Python's own integers
    state = np.array(np.random.default_rng(6).integers(1, 1 << 32, 4).tolist(), object)
    simulation.repeat(simulation.network(4, 4, 4), rules, WORST, 10**6, slow, state)
    assert fast.iterations.tolist() == slow.iterations.tolist()
    assert fast.counts.tolist() == slow.counts.tolist()


def test_what_did_not_settle_is_not_averaged() -> None:
    given = {
        "topology": "clos:n=5,r=5,m=5",
        "p": "1",
        "rule": "paper",
        "most_iterations": "3",
        "permutations": "20",
    }
    figures = EXPERIMENT.measure(EXPERIMENT.runs(given)[0]).figures
    assert figures["mean_iterations"] is None
    assert figures["settled_fraction"] < 1


@pytest.mark.slow
def test_informed_requests_take_at_most_seven_tenths_of_the_iterations_at_half_rate() -> None:
    for n in (8, 16):
        assert mean(n, 2, informed=1).mean() <= 0.7 * mean(n, 2).mean()


@pytest.mark.slow
def test_informed_requests_settle_without_spare_links_where_the_papers_rule_takes_exponentially_long() -> (  # noqa: E501
    None
):
    assert mean(4, 1, informed=1).mean() < 0.3 * mean(4, 1).mean()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topology": "clos:n=7,r=7,m=7", "p": "1", "rule": "paper"}, "rule=informed"),
        ({"topology": "clos:n=8,r=4,m=3", "p": "2"}, "take m >= 4"),
        ({"topology": "fattree:k=4"}, "clos:n=..,r=..,m=.., got fattree"),
        ({"traffic": "pairs", "topology": "clos:n=3,r=3,m=3"}, "an even number of hosts"),
        (
            {"traffic": "pairs", "topology": "clos:n=6,r=6,m=2", "p": "3", "key": "dest"},
            "pairs do not fit 2 spines at p=3: take key=flow",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EXPERIMENT.runs(given)


def test_every_figure_is_drawn() -> None:
    topologies = (
        "clos:n=3,r=3,m=3,clos:n=4,r=4,m=4,clos:n=4,r=3,m=4,clos:n=4,r=4,m=8,clos:n=3,r=3,m=6"
    )
    runs = EXPERIMENT.runs({"topology": topologies, "permutations": "20", "p": "1,2"}, seeds=1)
    rows = [{**run.parameters, **EXPERIMENT.measure(run).figures} for run in runs]
    figure = Figure()
    EXPERIMENT.plot(rows, figure)
    axes = [axes for part in figure.subfigs for axes in part.axes] or figure.axes
    titles = {one.get_title().split(",")[0] for one in axes}
    assert titles == {"figure 10a", "figure 10b", "figure 11", "figure 12", "m = 2 n"}
    assert all(len(one.lines[0].get_xdata()) == 2 for one in axes)


def test_batches_follow_until_the_error_is_small() -> None:
    texts = {"topology": "clos:n=4,r=4,m=4", "p": "2", "rule": "paper", "permutations": "100"}
    (run,) = EXPERIMENT.runs({**texts, "error_percent": "3"}, seeds=1)
    figures = EXPERIMENT.measure(run).figures
    assert figures["standard_error_iterations"] <= 0.03 * figures["mean_iterations"]
    assert figures["sampled_permutations"] % 100 == 0
    assert figures["sampled_permutations"] > 100


def test_cells_of_a_sweep_have_seeds_of_their_own() -> None:
    texts = {"topology": "clos:n=4,r=4,m=4", "p": "2", "rule": "paper,informed"}
    first, second = EXPERIMENT.runs({**texts, "permutations": "300"}, seeds=1)
    assert first.seed == second.seed
    assert first.id != second.id
