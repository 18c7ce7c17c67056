"""Experiments on the purified transport: on wires, and shortly on the kernel."""

import numpy as np
import pytest

from weft.daemons.fatpaths.scheme import TRIGGERS, Trigger
from weft.experiments.fatpaths import fatpaths_tcp, fatpaths_vs_fattree, ndp_baselines, transports
from weft.experiments.fatpaths.transports import Load
from weft.experiments.report import figures
from weft.testbed.packets.transport import transport
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import Mbps


def rows_of(experiment, engine="packet", **given):
    runs = experiment.runs(given, seeds=1, engines=[engine])
    results = [(run, experiment.measure(run)) for run in runs]
    return [
        {**run.parameters, "engine": engine, "fidelity": result.fidelity, **result.figures}
        for run, result in results
    ]


def test_transports_are_named():
    assert transport("ndp")[:4] == ("ndp", 0, "among", "flow")
    windows = [transport("ndp").ndp(10**9, 9000, planes=planes).window for planes in (1, 4, 64)]
    assert windows == [8, 32, 255]
    assert transport("ndp:window=23").ndp(10**9, 9000, planes=4).window == 23
    assert transport("tcp")[5:8] == ("reno", "random", "rack")
    assert transport("ndp:choice=reps").choice == "reps"
    assert transport("ndp:retransmissions=first").retransmissions == "first"
    assert transport("tcp:start=first").start == "first"
    assert transport("tcp:recovery=reno").recovery == "reno"
    assert transport("ndp:window=23").window == 23
    assert transport("tcp:control=cubic").control == "cubic"
    assert transport("tcp").small_queues == transport("tcp:control=cubic").small_queues == 1
    assert transport("tcp:small_queues=0").small_queues == 0
    assert transport("tcp:recovery=reno").small_queues == 0
    assert transport("tcp:recovery=reno,small_queues=1").small_queues == 1
    for wrong in (
        "udp",
        "plain",
        "ndp:control=reno",
        "tcp:window=8",
        "ndp:window=0",
        "ndp:retransmissions=1",
    ):
        with pytest.raises(ValueError, match=r"transport|window|parameter|retransmissions"):
            transport(wrong)


@pytest.mark.parametrize(("cell", "changes"), [
    ("packet ecmp tcp", 4),
    ("packet ecmp tcp:small_queues=1", 3),
    ("packet ecmp tcp:recovery=reno", 1),
    ("packet letflow tcp", 3),
    ("packet letflow tcp:small_queues=0", 2),
    ("packet fatpaths:trigger=cut tcp:recovery=reno", 2),
    ("packet fatpaths tcp:recovery=reno", 2),
    ("packet fatpaths:trigger=gap tcp", 3),
    ("packet flowlets tcp:recovery=reno", 0),
    ("packet ecmp ndp", 1),
    ("packet fatpaths:trigger=none ndp", 0),
    ("kernel ecmp tcp", 0),
    ("kernel layers tcp", 1),
])  # fmt: skip
def test_cells_whose_rows_have_changed_have_other_versions(cell, changes):
    engine, scheme, spec = cell.split()
    assert transports.revisions(engine, {"scheme": scheme, "transport": spec}) == changes


def test_the_papers_flows_leave_layers_by_their_data_on_both_engines():
    cell = {"routing": "layers", "topology": "slimfly:q=3,p=3", "rho": "0.6"}
    (run,) = fatpaths_tcp.EXPERIMENT.runs(cell, seeds=1, engines=["packet"])
    _, options = parse(fatpaths_vs_fattree.layered_scheme(run))
    on_linux = TRIGGERS[options["trigger"]]
    simulated = transports.tcp_layers(run, transports.Carriage(1, 1.0)).trigger
    assert on_linux == simulated == Trigger.CUT


def test_the_ideal_is_that_of_the_busiest_link_of_a_host():
    full = [Load(0, src, 0, 14_500) for src in (1, 2, 3)]
    assert transports.ideal_s(full, Mbps, 1514) == pytest.approx(3 * 10 * 1514 * 8 / 1e6)
    assert transports.ideal_s([Load(0, 0, 1, 1), Load(0, 0, 2, 1451)], Mbps, 1514) == pytest.approx(
        (65 + 65 + 1514) * 8 / 1e6
    )


def test_what_does_not_go_together_is_refused_in_one_line():
    for parameters, why in (
        (
            {"transport": "tcp:control=bbr", "topology": "star:n=9"},
            "simulated congestion control",
        ),
        ({"topology": "dcell:n=3,k=1"}, "topology must be a fabric of switches"),
        ({"topology": "planes:k=2,of=star:n=9"}, "a host has one link"),
        ({"topology": "star:n=9", "traffic": "incast:senders=9"}, "senders must be at most 8"),
    ):
        values = {"transport": "ndp", "traffic": "permutation", **parameters}
        with pytest.raises(ValueError, match=why):
            ndp_baselines.INCAST.runs(values, engines=["packet"])


def test_incast_on_wires_is_near_the_ideal_and_drawn(tmp_path):
    rows = rows_of(
        ndp_baselines.INCAST,
        topology="star:n=17",
        transport="ndp",
        traffic="incast:senders=4,incast:senders=16,permutation",
        message_kb="50",
    )
    assert [row["undelivered"] for row in rows] == [0, 0, 0]
    assert all(1 < row["last_ratio"] < 1.2 for row in rows)
    assert all(row["timeouts"] == row["header_drops"] == row["given_up"] == 0 for row in rows)
    assert rows[1]["trimmed_packets"] > rows[0]["trimmed_packets"] > rows[2]["trimmed_packets"] == 0
    tcp = {
        **rows[1],
        "transport": "tcp:control=reno",
        "engine": "kernel",
        "timeouts": None,
        "last_ratio": 5.0,
    }
    with figures.new() as figure:
        ndp_baselines.INCAST.plot(
            [*rows, tcp, {**tcp, "fidelity": "FAIL", "last_ratio": None}], figure
        )
        drawn = [line.get_label() for line in figure.axes[0].get_lines()]
        figures.save(figure, tmp_path / "figure.png")
    assert {"ndp, packet", "tcp:control=reno, kernel"} <= set(drawn)


def test_few_headers_are_lost_and_asked_after():
    (row,) = rows_of(
        ndp_baselines.INCAST,
        topology="star:n=17",
        transport="ndp",
        traffic="incast:senders=16",
        header_packets="9",
    )
    assert row["header_drops"] >= row["timeouts"] > 50  # a lost pull is made good by the next
    assert row["undelivered"] == 0


def test_flows_have_as_many_packets_and_as_much_load_as_the_papers():
    (run,) = ndp_baselines.LOAD.runs(
        {
            "topology": "star:n=60",
            "transport": "ndp",
            "lambda_per_s": "250",
            "seconds": "60",
            "rate_mbps": "5",
        },
        seeds=1,
        engines=["packet"],
    )
    assert ndp_baselines.load_fraction(run) == pytest.approx(0.2)
    wanted = ndp_baselines.flows_of(run)
    sizes = np.array([load.size_bytes for load in wanted])
    packets = -(-sizes // 1450)
    assert packets.max() == 223  # 2 MB in packets of 9000 bytes
    assert (sizes + 64 * packets).sum() * 8 / (60 * 60 * 5 * Mbps) == pytest.approx(0.2, rel=0.06)
    with pytest.raises(ValueError, match="lambda_per_s must be"):
        ndp_baselines.LOAD.runs({"lambda_per_s": "1250"})


@pytest.mark.slow
def test_more_flows_are_slower_on_wires_and_drawn(tmp_path):
    rows = rows_of(
        ndp_baselines.LOAD,
        topology="star:n=12",
        transport="ndp",
        lambda_per_s="50,700",
        rate_mbps="5",
        seconds="8",
    )
    few, many = rows
    assert few["unfinished"] == 0
    assert few["long_throughput_mean_fraction"] > 1.3 * many["long_throughput_mean_fraction"]
    assert few["short_normalised_mean"] < many["short_normalised_mean"]
    assert len(many["long_times_ms"]) > len(few["long_times_ms"]) > 0
    with figures.new() as figure:
        ndp_baselines.LOAD.plot(rows, figure)
        figures.save(figure, tmp_path / "figure.png")
        assert all(axes.get_lines() for axes in figure.axes)


@pytest.mark.kernel
def test_incast_on_the_kernel_by_both_transports():
    parameters = {
        "topology": "star:n=9",
        "traffic": "incast:senders=8",
        "message_kb": "30",
        "rate_mbps": "50",
    }
    ndp, tcp = rows_of(
        ndp_baselines.INCAST, engine="kernel", transport="ndp,tcp:control=reno", **parameters
    )
    assert ndp["undelivered"] == tcp["undelivered"] == 0
    assert ndp["trimmed_packets"] > 0
    assert (
        tcp["trimmed_packets"] == ndp["queue_drops"] == ndp["header_drops"] == ndp["given_up"] == 0
    )
    if not ndp["timeouts"]:
        assert ndp["duplicates"] == 0
        assert ndp["last_ratio"] > 0.8  # how much above 1 is the machine's affair
