from weft.experiments.cli.network_status import lateness, show_status

LEAF = {
    "node": "e0",
    "up": {"c0": 2, "c3": 1},
    "down": {"c1": 3},
    "bad": ["down c1"],
    "moves": 4,
    "swaps": 1,
    "replaced": 0,
    "requests_sent": 5,
    "requests_stale": 2,
}
STATE = {
    "run": "a1",
    "topology": "clos:n=4,r=4,m=4",
    "scheme": "dar",
    "failed": [],
    "mtu_bytes": {},
    "bypassed_packets": 0,
    "trimming": None,
    "authenticated": True,
    "layers": None,
    "nodes": [],
}


def test_flows_on_links_bad_links_and_moves_are_shown(capsys):
    show_status({**STATE, "flows": [LEAF, {**LEAF, "node": "e1", "down": {}, "bad": []}]})
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["node", "up", "down", "bad"]
    first, second = (line for line in lines if line.lstrip().startswith("e"))
    assert "c0:2 c3:1" in first
    assert "c1:3" in first
    assert "down c1" in first
    assert "none" in second


def test_schemes_that_place_no_flows_show_none(capsys):
    show_status({**STATE, "scheme": "ecmp", "flows": None})
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_machine_that_was_late_is_named_and_one_in_time_is_not():
    rows = [{"late_ticks": late, "losses": losses} for late, losses in ((0, 0), (3, 2), (4, 5))]
    assert lateness(rows) == (
        "the machine was late: hellos were handled more than an interval late 7 times, on 2 of 3 "
        "nodes; "
        "neighbours were lost 7 times"
    )
    assert lateness([{"late_ticks": 0, "losses": 2}]) == lateness([]) == ""
