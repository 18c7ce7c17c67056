"""Flows of FatPaths' simulations: sizes and arrivals (section VII-A), and tables of their times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.random import Generator

from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.engines.common_parameters import LAYERS, ORDER, UNFINISHED
from weft.experiments.engines.workloads import SIZES
from weft.experiments.report.panels import cumulative, exploded, valid_runs
from weft.experiments.runner.definition import Row, Table
from weft.experiments.runner.parameters import Number, Word
from weft.testbed.traffic.flows import Flow

SIZE_STEPS, LEAST_BYTES, MOST_BYTES, MEAN_BYTES = 20, 32 << 10, 2 << 20, 1_000_000
PERCENTILES = range(101)
LONG_BYTES = 1 << 20  # "long flows (1MiB)", figures 15 and 16
MAPPING = Word("whether hosts are placed at random (section III-D)", words=("linear", "random"))
SIZE_FRACTION = Number(
    "size of flows, as a fraction of the paper's", unit="fraction", least=1e-4, most=1
)


TIME_COLUMNS = {
    **UNFINISHED,
    "long_mean_ms": (
        "mean time of long flows (1 MiB times size_fraction, and more); null if there is none"
    ),
    "long_p99_ms": "99th percentile of that",
    "short_mean_ms": "mean time of the other flows; null if there is none",
    "short_p99_ms": "99th percentile of that",
    "warm_long_mean_ms": (
        "mean time of long flows that begin in the second half of the time (section VII-A8)"
    ),
    "warm_long_p99_ms": "99th percentile of that",
    "long_flows": "how many flows are long",
    "sizes_bytes": "list: size of each flow, in order of their beginning",
    "times_ms": "list: time of each flow",
    "repeated": "list: segments of each flow that TCP sent again",
    "repeated_in_vain": "list: packets that each flow sent again although the receiver had them",
    "timeouts": (
        "list: expiries of each flow's retransmission timer; 0 before Linux 6.7, which does not "
        "tell"
    ),
    "timeout_ms": (
        "list: how long it took each flow to recover, from the expiries on; 0 before Linux 6.7"
    ),
    **LAYERS,
    **ORDER,
}


ENDED_COLUMNS = {
    "*_ended_flows": "flows of that length that ended",
    "*_ended_mean_ms": "mean time of those that ended; null without any",
    "*_ended_p99_ms": "99th percentile of that",
    "*_flows": "flows of that length that were counted",
    "*_unfinished_fraction": "share of these that did not end; null without any",
    "*_median_ms": "median time of all of these; null if half of them did not end",
}


def steps(fraction: float) -> Ints:
    """Return the paper's flow sizes times `fraction`: 20 equally likely steps.

    They are quantiles of the web-search distribution from 32 KiB to 2 MiB, multiplied before they
    are cut off there, such that the mean is 1 MB.
    """
    web_search = SIZES["web-search"]
    middle = (np.arange(SIZE_STEPS) + 0.5) / SIZE_STEPS
    quantiles = np.interp(middle, web_search.fraction, web_search.bytes_)
    factors = np.geomspace(1, 16, 400)[:, None]
    sizes = np.clip(factors * quantiles, LEAST_BYTES, MOST_BYTES)
    nearest = abs(sizes.mean(axis=1) - MEAN_BYTES).argmin()
    scaled: Ints = np.maximum(1, sizes[nearest] * fraction).astype(np.int64)
    return scaled


def arrivals(
    rng: Generator,
    pairs: Sequence[tuple[int, int]],
    sizes: Ints,
    *,
    load_fraction: float,
    rate_bps: float,
    duration_s: float,
) -> Iterator[Flow]:
    """Yield flows that arrive at random between `pairs`.

    In the mean a pair's sender uses `load_fraction` of `rate_bps`, headers aside.
    """
    per_s = len(pairs) * load_fraction * rate_bps / (8 * float(sizes.mean()))
    begin_s = rng.exponential(1 / per_s)
    while begin_s < duration_s:
        src, dst = pairs[int(rng.integers(len(pairs)))]
        yield Flow(begin_s, src, dst, int(rng.choice(sizes)))
        begin_s += rng.exponential(1 / per_s)


def summary(name: str, ms: Floats) -> Row:
    """Return mean and 99th percentile of times; None if there is no such flow."""
    return {
        f"{name}_mean_ms": ms.mean() if len(ms) else None,
        f"{name}_p99_ms": np.percentile(ms, 99) if len(ms) else None,
    }


def ended_summary(name: str, ms: Floats) -> Row:
    """Return statistics of times, infinite for a flow that did not end; None where there is none.

    The median is that of all flows.  Mean and 99th percentile are of the flows that ended.
    """
    ended = ms[np.isfinite(ms)]
    median = float(np.median(ms)) if len(ms) else np.inf
    return {
        f"{name}_flows": len(ms),
        f"{name}_unfinished_fraction": 1 - len(ended) / len(ms) if len(ms) else None,
        f"{name}_median_ms": median if np.isfinite(median) else None,
        f"{name}_ended_flows": len(ended),
        **summary(f"{name}_ended", ended),
    }


def long_and_short(sizes: Ints, ms: Floats, fraction: float) -> Row:
    """Return the columns on long and short flows of `sizes`, a fraction of the paper's."""
    long = sizes >= LONG_BYTES * fraction
    return {
        **summary("long", ms[long]),
        **summary("short", ms[~long]),
        "long_flows": long.sum(),
    }


def columns(sizes: Ints, ms: Floats, fraction: float) -> Row:
    """Return the columns on the times of all flows of `sizes`, a fraction of the paper's."""
    return {
        **long_and_short(sizes, ms, fraction),
        "sizes_bytes": sizes.tolist(),
        "times_ms": ms.round(4).tolist(),
    }


def distributions(sizes: Ints, ms: Floats, fraction: float, rate_bps: float) -> Row:
    """Return lists: statistics of each size of flows, and percentiles of the long ones' times."""
    steps_bytes = np.unique(sizes)
    times = [ms[sizes == size] for size in steps_bytes]
    rates = [8000 * size / part / rate_bps for size, part in zip(steps_bytes, times, strict=True)]
    long = ms[sizes >= LONG_BYTES * fraction]
    percentiles = np.percentile(long, PERCENTILES) if len(long) else np.zeros(0)
    return {
        "step_bytes": steps_bytes.tolist(),
        "step_throughput_fraction": rounded(part.mean() for part in rates),
        "step_throughput_p1_fraction": rounded(np.percentile(part, 1) for part in rates),
        "step_mean_ms": rounded(part.mean() for part in times),
        "step_p99_ms": rounded(np.percentile(part, 99) for part in times),
        "long_percentiles_ms": rounded(percentiles),
    }


def rounded(values: Iterable[float]) -> list[float]:
    """Return the values with five decimals."""
    return [round(float(value), 5) for value in values]


def long_times(table: Table, keys: Sequence[str]) -> list[Row]:
    """Return the distribution of the times of long flows for each combination of `keys`."""
    rows = []
    for row in table:
        sizes, times = (np.array(row[key], float) for key in ("sizes_bytes", "times_ms"))
        long = sizes >= LONG_BYTES * row["size_fraction"]
        rows.append({**row, "long_times_ms": times[long].tolist()})
    return cumulative(rows, "long_times_ms", keys)


def by_size(table: Table) -> Table:
    """Return a row for each flow, with its throughput as a fraction of a link's rate."""
    return [
        {
            **row,
            "throughput_fraction": 8
            * row["sizes_bytes"]
            / (1000 * row["times_ms"] * row["rate_mbps"]),
        }
        for row in exploded(table, ("sizes_bytes", "times_ms"), "flow")
    ]


def percentiles(table: Table, keys: Sequence[str]) -> list[Row]:
    """Return a row for each percentile of the times of long flows, for each value of `keys`.

    It has the mean over the runs that agree in `keys` and have long flows.  Runs that failed
    fidelity count only without any other.
    """
    runs = defaultdict(list)
    for row in table:
        if row["long_percentiles_ms"]:
            runs[tuple(row[key] for key in keys)].append(row)
    means = []
    for same in runs.values():
        times = np.array([row["long_percentiles_ms"] for row in valid_runs(same)[0]], float)
        means.append({**same[0], "long_times_ms": times.mean(axis=0).tolist()})
    return exploded(means, ("long_times_ms",), "percent")
