"""Selection of daemons and data plane for a scheme."""

import pytest

from weft.daemons.core import registry
from weft.daemons.core.contract import FlowRewrite
from weft.daemons.fatpaths.scheme import Trigger
from weft.testbed.plan import plane_selection
from weft.testbed.plan.plane_selection import check_scheme, has_daemons, is_static, planes
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

TREE, DCELL = build("fattree:k=8"), build("dcell:n=4,k=1")
DELAYED = LinkSpec(rate_bps=10 * Mbps, queue_packets=100, delay_us=1000)


def config(topology, spec, link=None):
    return next(iter(planes(topology, spec, link).configs.values()))


def test_a_scheme_of_daemons_hands_on_what_is_the_data_planes():
    assert planes(TREE, "lbsp:hello_ms=10", None).balancing == "lbsp"
    assert config(TREE, "lbsp:hello_ms=10").interval_ms == 10
    assert (
        planes(TREE, "lbsp:groups=4,hash=1,lifetime_ms=900", None).balancing
        == "lbsp:groups=4,hash=1"
    )
    assert planes(DCELL, "dr", None).balancing == ""


def test_a_scheme_of_the_data_plane_has_daemons_that_tell_it_what_lives():
    assert planes(TREE, "spray:hello_ms=10", None).balancing == "spray"
    assert (
        config(TREE, "spray:hello_ms=10").scheme,
        config(TREE, "spray:hello_ms=10").interval_ms,
    ) == ("bfs", 10)


def test_hosts_choose_layers_with_and_without_the_data_plane():
    slimfly = build("slimfly:q=3,p=1")
    how = planes(slimfly, "fatpaths:layers=4,trigger=gap-ecn,gap_us=90,hello_ms=10", None)
    assert how.balancing == "fatpaths:layers=4,trigger=gap-ecn,gap_us=90"
    assert how.hosts == {
        **{"layers": 4, "trigger": Trigger.GAP | Trigger.ECN, "gap_us": 90, "cell_kb": 64},
        **{"start": 0, "choice": 0, "ecn_percent": 50, "ecn_rounds": 1, "seed": 1},
    }
    delayed = planes(slimfly, "fatpaths:forwarding=kernel", DELAYED)
    assert (delayed.balancing, delayed.hosts["layers"]) == ("", 9)
    assert not planes(TREE, "ecmp", None).hosts
    with pytest.raises(ValueError, match="the kernel's own table does not mark packets"):
        planes(slimfly, "fatpaths:forwarding=kernel,ecn=20", DELAYED)


def test_fixed_routes_and_none_have_no_daemons():
    assert (planes(DCELL, "static", None).static, planes(DCELL, "none", None).static) == (
        True,
        False,
    )
    assert not planes(DCELL, "static", None).configs
    assert [planes(DCELL, spec, None).ipv6 for spec in ("static", "static:ipv6=1", "none")] == [
        False,
        True,
        False,
    ]
    assert [is_static(spec) for spec in ("static", "none", "dr")] == [True, False, False]
    assert [has_daemons(spec) for spec in ("static", "none", "dr", "ttc:hello_ms=3")] == [
        False,
        False,
        True,
        True,
    ]


def test_what_is_behind_a_delay_misses_the_data_plane():
    assert planes(TREE, "ecmp", None).balancing == "ecmp"
    assert planes(TREE, "ecmp", DELAYED).balancing == ""
    with pytest.raises(ValueError, match="scheme ttc and a delay exclude each other"):
        planes(TREE, "ttc", DELAYED)


@pytest.mark.parametrize("spec", ["ttc", "drill", "micro", "jsq", "rr:ecn=20", "lbsp:states=1"])
def test_what_compares_queues_is_refused_where_links_have_none(spec):
    with pytest.raises(
        ValueError, match=f"^{spec}: it chooses by what waits in queues, and links without a rate"
    ):
        planes(TREE, spec, None)
    assert planes(TREE, spec, LinkSpec(rate_bps=10 * Mbps, queue_packets=100)).balancing == spec


def test_a_rate_to_compare_with_is_refused_where_links_have_none():
    with pytest.raises(ValueError, match="rate_kbps is compared with the rate of links"):
        planes(TREE, "lbsp:rate_kbps=20000", None)


def test_links_and_needs_are_told():
    ficonn = build("ficonn:n=4,k=1")
    assert config(ficonn, "tar", DELAYED).options["capacity_kbps"] == 10_000
    assert planes(ficonn, "tar", None).needs == {FlowRewrite}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lbsp:groups=4,states=1", "states need two link groups, got groups=4"),
        ("lbsp:groups=3", "groups must be a power of two"),
        ("lbsp:groups=x", "groups must be an integer"),
        ("lbsp:groups=8", "groups must be a power of two from 2 to k/2 = 4, got 8"),
        ("spary", "no scheme 'spary', did you mean spray"),
        ("dr", "scheme dr runs on server-centric networks"),
        ("ttc:delta=-1", "delta must be at least 0"),
    ],
)
def test_what_does_not_go_together_is_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        planes(TREE, spec, None)


def test_a_scheme_is_checked_without_configuring_its_daemons(monkeypatch):
    monkeypatch.setattr(
        registry, "configure", lambda *_, **__: pytest.fail("a configuration for each node")
    )
    check_scheme(DCELL, "dr", None)
    with pytest.raises(ValueError, match="ttc and a delay exclude each other"):
        check_scheme(TREE, "ttc", DELAYED)


def test_a_network_larger_than_a_run_is_refused_before_daemons_are_configured(monkeypatch):
    monkeypatch.setattr(
        registry, "configure", lambda *_, **__: pytest.fail("a configuration for each node")
    )
    with pytest.raises(
        ValueError, match=r": 22,650 servers, 151 switches, 33,975 links; .* 14,328 links"
    ):
        planes(build("dcell:n=150,k=1"), "dr", None)


def test_more_routes_than_the_data_plane_holds_are_refused_before_daemons_are_configured(
    monkeypatch,
):
    monkeypatch.setattr(registry, "configure", lambda *_, **__: {})
    large = build("slimfly:q=13,p=1")
    with pytest.raises(
        ValueError, match=r"needs 1,142,440 routes, .* 1,048,576 in all; take fewer layers"
    ):
        planes(large, "fatpaths:layers=9", None)
    planes(large, "fatpaths:layers=8", None)
    monkeypatch.setattr(plane_selection, "MOST_ROUTES", 1_142_440 // 10)
    planes(large, "ecmp", None)
