"""What the runs of DAR's tables ask of the kernel."""

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
    plan = settings.kernel_plan(run, [], 2.0, every_s=0.5)
    assert (plan.topology, plan.rate_bps, plan.queue_packets) == ("clos:n=2,r=3,m=2", 7_000_000, 9)
    between, of_hosts = plan.links()
    assert (between.rate_bps, of_hosts.rate_bps) == (7_000_000, 1_750_000)
    assert (plan.seconds, plan.every_s, plan.seed) == (2.0, 0.5, run.seed)
    assert plan.spec.startswith("dar:")
