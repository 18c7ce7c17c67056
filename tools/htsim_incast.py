"""Write the incasts of htsim into results/elsewhere, beside which weft draws its own.

    python tools/htsim_incast.py HTSIM

HTSIM is the folder sim/datacenter of a checkout of Broadcom/csg-htsim in which `make htsim_ndp` has
run; its commit is to be 841d9e7.  Each run is a fat-tree with k = 4, 10 Gbit/s and 1 us a link,
payloads of 9,000 bytes, queues and windows of eight packets.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

OUTPUT = Path(__file__).parents[1] / "results" / "elsewhere" / "htsim_ndp_incast.jsonl"
HOSTS, RATE_MBPS, PAYLOAD_BYTES, PACKETS = 16, 10_000, 9_000, 8
SENDERS, MESSAGES_KB, SEEDS = (4, 15), (18, 90, 450, 1_800), range(10)


def command(matrix: Path, seed: int) -> list[str]:
    """Return the command line of htsim."""
    options = {
        "nodes": HOSTS,
        "tm": matrix,
        "cwnd": PACKETS,
        "q": PACKETS,
        "mtu": PAYLOAD_BYTES,
        "linkspeed": RATE_MBPS,
        "hop_latency": 1,
        "switch_latency": 0,
        "strat": "perm",
        "paths": 128,
        "seed": seed + 1,
        "end": 1_000_000,
        "o": matrix.with_suffix(".log"),
    }
    words = [word for name, value in options.items() for word in (f"-{name}", str(value))]
    return ["./htsim_ndp", *words]


def incast(htsim: Path, senders: int, message_kb: int, seed: int) -> dict[str, object]:
    """Return the row of one run; RuntimeError if a message did not end."""
    lines = [f"Nodes {HOSTS}", f"Connections {senders}"]
    lines += [f"{n}->0 id {n} start 0 size {1000 * message_kb}" for n in range(1, senders + 1)]
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder) / "incast.cm"
        matrix.write_text("\n".join(lines) + "\n", encoding="utf-8")
        words = command(matrix, seed)
        output = subprocess.run(words, cwd=htsim, check=True, capture_output=True, text=True).stdout
    ends_us = [float(end) for end in re.findall(r"finished at ([\d.]+)", output)]
    if len(ends_us) != senders:
        raise RuntimeError(f"{senders - len(ends_us)} messages did not end: {' '.join(words)}")
    sent_again = int(re.findall(r"Rtx: (\d+)", output)[0])
    return {
        "engine": "htsim",
        "traffic": f"incast:senders={senders}",
        "message_kb": message_kb,
        "rate_mbps": RATE_MBPS,
        "seed": seed,
        "last_ms": max(ends_us) / 1000,
        "retransmissions": sent_again,
    }


def main() -> None:
    htsim = Path(sys.argv[1])
    rows = [incast(htsim, s, kb, seed) for s in SENDERS for kb in MESSAGES_KB for seed in SEEDS]
    OUTPUT.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
