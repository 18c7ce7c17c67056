import pytest

from weft.daemons.routing.shortest import dead_channels
from weft.experiments.ccrdn import connectivity
from weft.experiments.ccrdn.connectivity import KERNEL as EXPERIMENT
from weft.experiments.ccrdn.connectivity import kernel_faults as faults
from weft.experiments.ccrdn.recursive import faults as graph_faults
from weft.experiments.report import figures
from weft.topologies import build


@pytest.mark.parametrize("failed", ["links", "nodes", "racks"])
def test_the_faults_are_those_of_the_graph_engine(failed):
    parameters = {"topology": "dcell:n=3,k=2", "routing": "dr", "failed": failed}
    (run,) = EXPERIMENT.runs(parameters, seeds=1)
    (same,) = connectivity.GRAPH.runs(parameters, seeds=1)
    dead, topology = graph_faults(same), faults(run)
    assert dead_channels(topology, topology.naming.network) == dead.down.tobytes()
    assert topology.failed.any()


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"failed": "switches"}, "connectivity_kernel: no failed 'switches'"),
        (
            {"questions_per_s": "-1"},
            "connectivity_kernel: questions_per_s must be at least 0, got -1",
        ),
        ({"failed_fraction": "1.5"}, "connectivity_kernel: failed_fraction must lie in"),
        (
            {"topology": "fattree:k=4", "routing": "bfs"},
            "connectivity_kernel: topology must be dcell",
        ),
        (
            {"topology": "fattree:k=4", "routing": "ecmp"},
            "connectivity_kernel: topology must be dcell",
        ),
    ],
)
def test_what_cannot_be_is_refused(parameters, says):
    with pytest.raises(ValueError, match="connectivity_kernel") as error:
        EXPERIMENT.runs(parameters)
    assert str(error.value).startswith(says)


def test_it_is_drawn_also_where_the_graph_does_not_tell(tmp_path):
    known = {
        "topology": "ficonn:n=4,k=1",
        "failed": "links",
        "failed_fraction": 0.1,
        "physical_fraction": 0.99,
    }
    rows = [
        {
            "routing": routing,
            "graph_fraction": told,
            "pinged_fraction": 0.9,
            **known,
            "engine": "kernel",
            "seed": 0,
        }
        for routing, told in (("dr", 0.9), ("pr-gpi", 0.95), ("bfs", None))
    ]
    about = {"commit": None, "dirty": False}
    figures.plot(
        EXPERIMENT, [(row | {"fidelity": "PASS"}, about) for row in rows], tmp_path / "a.svg"
    )
    assert "failed_fraction=0.1" in (tmp_path / "a.svg").read_text()


@pytest.mark.kernel
def test_who_pings_is_who_the_graph_connects():
    parameters = {"topology": "dcell:n=3,k=1", "failed_fraction": "0.2"}
    seen = {}
    for routing in ("dr", "pr-gpi"):
        (run,) = EXPERIMENT.runs(parameters | {"routing": routing}, seeds=1)
        result = EXPERIMENT.measure(run)
        figures = seen[routing] = result.figures
        assert result.fidelity in ("PASS", "WARN", "FAIL")
        assert figures["equal"]
        assert (
            figures["pinged_fraction"] == figures["graph_fraction"] <= figures["physical_fraction"]
        )
        assert (figures["lost_though_connected"], figures["pinged_though_lost"]) == (0, 0)
        assert figures["failed_links"] == round(0.2 * len(build("dcell:n=3,k=1").links))
    assert seen["dr"]["pinged_fraction"] < seen["pr-gpi"]["pinged_fraction"]
