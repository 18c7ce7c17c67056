"""Measurements on the Slim Fly installation, beside simulated packets on the same network.

The paper's figures stand in no text at hand.  A project of a course measured collective operations
on the installation in 2022; its page has them as tables.
"""

from __future__ import annotations

from weft.experiments.report.claims import (
    Claim,
    Query,
    Statement,
    StatementKind,
    Sweep,
    above,
    below,
    within,
)

INSTALLATION, FAT_TREE = "slimfly:q=5,p=4", "clos:n=18,r=12,m=18"
LAYERS = "fatpaths:construction=lnmp-longer,layers=4,start=random,trigger=cut"
LINKS = {"rate_mbps": 40_000, "frame_bytes": 4096}  # an InfiniBand MTU
REPOSITORY = "youwuyou/slimfly_collectives"
ALL_REDUCE = (
    "200 nodes (189 in the file of their names), a rank each, hosts in order, Open MPI 1.10.7, OSU "
    "6.2, mean of 100 iterations; rate and routing not named"
)
OURS = "40 Gbit/s, one path a pair; the second value is four layers of LNMP, longer paths"
STEPS = (
    "Each step of the ring waits for the slowest message, which crosses up to four links of 1 µs "
    "here; on the installation a step of the smallest took 3 µs."
)
ADDING = "MPI copies each block and adds it; here that takes no time."
# kB, then ms: Open MPI's choice, which is the ring by its rule, and recursive doubling.  The page's
# table "ring" has the times of its table "recursive_doubling", but for one size.
MEASURED = (
    (100, 1.18107, 0.84837),
    (200, 1.46262, 1.58194),
    (400, 1.81838, 2.76376),
    (800, 3.30389, 5.17203),
    (1600, 3.17133, 9.69343),
    (3200, 9.00689, 18.99418),
)
# ranks, bytes for each other rank, ms
EXCHANGED = ((32, 1024, 0.190119), (199, 2048, 1.796653))


def all_reduce(scheme: str, algorithm: str, kilobytes: int, *, over: str = "") -> Query:
    """Return the time of an all-reduce in ms, or over that by another algorithm.

    Args:
        scheme: routing of the installation.
        algorithm: of the all-reduce.
        kilobytes: size of the buffer.
        over: algorithm to divide by.
    """
    where = {
        **LINKS,
        "topology": INSTALLATION,
        "scheme": scheme,
        "algorithm": algorithm,
        "size_bytes": 1000 * kilobytes,
        "ranks": 200,
        "placement": "linear",
    }
    divided = {"algorithm": over} if over else {}
    return Query("collectives", where, "completion_ms", divided, seeds=1)


def exchange(ranks: int, size_bytes: int) -> Query:
    """Return the time of an all-to-all of `size_bytes` for each other rank, in ms."""
    where = {
        **LINKS,
        "topology": INSTALLATION,
        "scheme": "ecmp",
        "operation": "all-to-all",
        "algorithm": "pairwise",
        "size_bytes": ranks * size_bytes,
        "ranks": ranks,
        "placement": "random",
    }
    return Query("collectives", where, "completion_ms", seeds=3)


def measured(name: str, value_ms: float, kind: StatementKind, setting: str) -> Statement:
    """Return the statement of a time in a table."""
    return Statement(f"{REPOSITORY}, {name}", f"{1000 * value_ms:.2f} µs", kind, setting)


def time_claim(algorithm: str, kilobytes: int, value_ms: float, title: str) -> Claim:
    """Return the claim on one time of an all-reduce."""
    return Claim(
        f"time of an all-reduce by {algorithm}, {kilobytes} kB",
        measured(f"osu_allreduce, {title}", value_ms, "number", ALL_REDUCE),
        value_ms,
        all_reduce("ecmp", algorithm, kilobytes),
        within(0.25),
        OURS,
        why_more=STEPS if algorithm == "ring" else "",
        why_less=ADDING,
        otherwise=all_reduce(LAYERS, algorithm, kilobytes),
        unnamed="which routing the times were measured with",
    )


def order_claim(kilobytes: int, ring_ms: float, doubling_ms: float) -> Claim:
    """Return the claim on which algorithm is faster at a size."""
    ratio = ring_ms / doubling_ms
    return Claim(
        f"time of an all-reduce by the ring over recursive doubling, {kilobytes} kB",
        Statement(
            f"{REPOSITORY}, osu_allreduce",
            f"{1000 * ring_ms:.2f} and {1000 * doubling_ms:.2f} µs",
            "order",
            ALL_REDUCE,
        ),
        round(ratio, 2),
        all_reduce("ecmp", "ring", kilobytes, over="recursive-doubling"),
        above(1) if ratio > 1 else below(1),
        OURS,
        why_more=STEPS,
        otherwise=all_reduce(LAYERS, "ring", kilobytes, over="recursive-doubling"),
        unnamed="which routing the times were measured with",
    )


CLAIMS = (
    *(order_claim(*row) for row in MEASURED),
    *(
        time_claim("recursive-doubling", kilobytes, doubling_ms, "algorithm 3")
        for kilobytes, _, doubling_ms in MEASURED
    ),
    *(time_claim("ring", kilobytes, ring_ms, "algorithm 0") for kilobytes, ring_ms, _ in MEASURED),
    *(
        Claim(
            f"time of an all-to-all of {ranks} ranks, {size_bytes} bytes for each",
            measured(
                "alltoall/out",
                value_ms,
                "number",
                "ranks in steps of random permutations, slowest rank, mean of 10 iterations; rate "
                "and routing not named",
            ),
            value_ms,
            exchange(ranks, size_bytes),
            within(0.25),
            "pairwise steps on random hosts, 40 Gbit/s, one path a pair, three seeds",
            why_less="MPI's work for each message takes no time here.",
        )
        for ranks, size_bytes, value_ms in EXCHANGED
    ),
)
BESIDE = ((INSTALLATION, ("ecmp", LAYERS)), (FAT_TREE, "dmodk"))
SWEEPS = (
    *(
        Sweep(
            "collectives",
            {
                **LINKS,
                "topology": topology,
                "scheme": schemes,
                "operation": operation,
                "algorithm": algorithm,
                "size_bytes": 3_200_000,
                "ranks": 200,
                "placement": "linear",
            },
            1,
        )
        for topology, schemes in BESIDE
        for operation, algorithm in (
            ("all-reduce", "recursive-doubling"),
            ("all-to-all", "pairwise"),
        )
    ),
    *(
        Sweep(
            "fabrics",
            {
                **LINKS,
                "topology": topology,
                "scheme": schemes,
                "transport": "ndp",
                "traffic": "permutation",
                "sizes": "fixed:bytes=1000000",
                "load_fraction": 0,
            },
            3,
        )
        for topology, schemes in BESIDE
    ),
)
