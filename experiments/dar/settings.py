"""What a run of dar_table or dar_settling asks for, in slots, for daemons and for the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.daemons.core import registry
from weft.experiments.runner.definition import Run
from weft.topologies import build
from weft.topologies.core.grammar import parse, unparse

if TYPE_CHECKING:
    from weft.experiments.dar.clos_messages import ClosMessagesPlan
    from weft.testbed.traffic.flows import Flow

KERNEL_FRAME_BYTES, MOST_KERNEL_HOSTS = 1514, 256
MOST_HOSTS = 4096


def clos_size(topology: str) -> tuple[int, int, int]:
    """Return n, r and m of `topology`; ValueError unless it is a Clos network."""
    name, parameters = parse(topology)
    if name != "clos":
        raise ValueError(f"the network must be clos:n=..,r=..,m=.., got {topology}")
    n, r, m = (int(parameters[key]) for key in "nrm")
    return n, r, m


def size(topology: str) -> tuple[int, int, int]:
    """Return n, r and m of `topology`; ValueError unless it is a small enough Clos network."""
    n, r, m = clos_size(topology)
    if n * r > MOST_HOSTS or r * m > 4 * MOST_HOSTS:
        raise ValueError(
            f"take at most {MOST_HOSTS} hosts and {4 * MOST_HOSTS} links of spines, got {topology}"
        )
    return n, r, m


def slot_us(run: Run) -> float:
    """The time of a packet on a link."""
    return run.integer("packet_bytes") * 8 / run.number("link_gbps") / 1000


def slots(run: Run, key: str) -> int:
    """The time `key` of `run` in slots, 1 at least."""
    return max(1, round(run.number(key) / slot_us(run)))


def slots_of_10_us(run: Run) -> int:
    """The period in which the paper counts reroutes."""
    return max(1, round(10 / slot_us(run)))


def flows_of_link(run: Run) -> int:
    """p: how many hosts' rates a link carries, rounded, so that 0.52 of its rate is taken for a
    half, too.
    """
    return max(1, round(run.number("link_gbps") / run.number("host_gbps")))


def message_packets(run: Run) -> int:
    """Packets of a message."""
    return -(-run.integer("message_kb") * 1024 // run.integer("packet_bytes"))


def daemon_options(run: Run, period_s: float) -> dict[str, str | int]:
    """Those of DAR's daemons for the scheme of `run`."""
    by_queue = run.text("scheme") == "dar"
    return {
        "p": int(run.number("link_gbps") / run.number("host_gbps"))
        if by_queue
        else flows_of_link(run),
        "detect": "queue" if by_queue else "count",
        "informed": int(run.text("scheme") == "dar-informed"),
        "period_us": max(1, round(period_s * 1e6)),
        "cool": -(-run.integer("rest_slots") // run.integer("period_slots")),
        "key": run.text("key"),
        "every": int(run.text("requests") == "every-link"),
        "swap": int(run.text("swap") == "yes"),
        "start": {"random": "hash"}.get(run.text("start"), "modulo"),
        "active_us": 1000,
    }


def spec_on_kernel(run: Run) -> str:
    """The scheme of `run` on the kernel."""
    if not run.text("scheme").startswith("dar"):
        return run.text("scheme")
    period_s = run.integer("period_slots") * kernel_slot_s(run)
    more = {
        "active_us": round(2e6 * period_s),
        "elephant_kb": 0,
        "queue": run.integer("queue_packets"),
    }
    return unparse("dar", {**daemon_options(run, period_s), **more})


def kernel_slot_s(run: Run) -> float:
    """The time of a packet on a link of the kernel."""
    return 8e-6 * KERNEL_FRAME_BYTES / run.integer("kernel_mbps")


def check_kernel(run: Run) -> None:
    """ValueError for what the kernel or simulated daemons cannot do."""
    n, r, _ = size(run.text("topology"))
    if n * r > MOST_KERNEL_HOSTS:
        raise ValueError(
            f"{run.experiment}: at most {MOST_KERNEL_HOSTS} hosts on {run.engine}, "
            f"{run.text('topology')} has {n * r}"
        )
    if run.text("scheme").startswith("dar"):
        if run.text("start") not in ("modulo", "random"):
            raise ValueError(
                f"{run.experiment}: daemons start flows by modulo or random, got "
                f"{run.text('start')}"
            )
        registry.checked(build(run.text("topology")), unparse("dar", daemon_options(run, 0.01)))


def kernel_plan(run: Run, wanted: Sequence[Flow], seconds: float, **more: Any) -> ClosMessagesPlan:
    """That `wanted` be sent on the kernel for `seconds`, in the network, at the rates and by the
    scheme of `run`; the others are fields of the plan.
    """
    from weft.experiments.dar import clos_messages

    return clos_messages.ClosMessagesPlan(
        run.text("topology"),
        spec_on_kernel(run),
        run.integer("kernel_mbps") * 10**6,
        run.number("host_gbps") / run.number("link_gbps"),
        run.integer("room_packets"),
        wanted,
        seconds,
        seed=run.seed,
        **more,
    )
