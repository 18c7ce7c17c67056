"""Settings of the kernel in runs of DAR's tables."""

from weft.experiments.dar import settings
from weft.experiments.dar.dar_table import EXPERIMENT


def test_the_plan_for_the_kernel_has_the_rates_and_the_room_that_were_asked_for():
    given = {
        "topology": "clos:n=2,r=3,m=2",
        "kernel_mbps": "7",
        "link_gbps": "40",
        "host_gbps": "10",
        "room_packets": "9",
    }
    run, *_ = EXPERIMENT.runs({**given, "scheme": "dar-count"}, seeds=1, engines=["kernel"])
    plan = settings.kernel_plan(run, flows=[], seconds=2.0, warm_up_s=0.5)
    assert (plan.topology, plan.link.queue_packets) == ("clos:n=2,r=3,m=2", 9)
    assert (plan.link.rate_bps, plan.host_link.rate_bps) == (7_000_000, 1_750_000)
    assert (plan.seconds, plan.warm_up_s, plan.seed) == (2.0, 0.5, run.seed)
    assert plan.scheme.startswith("dar:")
