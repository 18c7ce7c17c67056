"""Records in the data plane's maps: Python writes each field as the program reads it."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.daemons.core import registry
from weft.daemons.routing import selection
from weft.testbed.data_plane import plane_program
from weft.testbed.data_plane.plane_program import READERS, Record
from weft.testbed.linux import btf, libbpf

BPF = libbpf.DIRECTORY
RECORDS = [value for value in vars(plane_program).values() if isinstance(value, Record)]


def differences(record: Record, layout: btf.StructLayout) -> list[str]:
    """The fields that lie elsewhere in C, or have another name or size, and those that only one of
    the two has."""
    ours = {}
    begin = 0
    for name, code in record.fields.items():
        ours[name] = (begin, struct.calcsize(f"={code}"))
        begin += ours[name][1]
    theirs = {name: (field.offset, field.size) for name, field in layout.fields.items()}
    names = [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]
    return sorted(names) + (["size"] if struct.calcsize(record.format) != layout.size else [])


@pytest.mark.parametrize("name", READERS.values())
def test_every_struct_is_the_same_in_both_languages(
    name: str, compiled: Callable[[Path], Path]
) -> None:
    layouts = btf.layouts(compiled(BPF / name.replace(".o", ".c")))
    assert {record.name: differences(record, layouts[record.name]) for record in RECORDS} == {
        record.name: [] for record in RECORDS
    }


def test_every_parameter_of_every_scheme_is_a_field_of_the_switch(
    compiled: Callable[[Path], Path],
) -> None:
    fields = btf.layouts(compiled(BPF / "select.bpf.c"))["switch_"].fields
    for name in registry.with_data_plane():
        assert registry.rule(name).parameters.keys() <= fields.keys(), name
    assert len(fields["digits"].integers) == 3 * selection.DIGITS


ALONE = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct switch_ { __u32 rule; };
#include "select_maps.h"
__u32 port_of(struct long_queue *report) { return report->port; }
char _license[] SEC("license") = "GPL";
"""


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("", "", []),
        ("__u64 moved;", "", ["bypassed", "marked", "moved", "trimmed", "untrimmed", "size"]),
        ("__u32 n;", "__u32 count;", ["count", "n"]),
        ("__u32 n;", "__u64 n;", ["n", "ports", "size"]),
        ("__u64 packets;\n\t__u64 bytes;", "__u64 bytes;\n\t__u64 packets;", ["bytes", "packets"]),
    ],
    ids=[
        "nothing",
        "one fewer",
        "another name",
        "another size with padding",
        "another order of the same sizes",
    ],
)
def test_what_c_lays_out_otherwise_is_noticed(
    was: str, becomes: str, said: list[str], compiled: Callable[[Path], Path], tmp_path: Path
) -> None:
    text = (BPF / "select_maps.h").read_text()
    assert was in text
    (tmp_path / "select_maps.h").write_text(text.replace(was, becomes))
    shutil.copy(BPF / "packet.h", tmp_path)
    program = tmp_path / "alone.bpf.c"
    program.write_text(ALONE)
    layouts = btf.layouts(compiled(program))
    assert [
        difference for record in RECORDS for difference in differences(record, layouts[record.name])
    ] == said


def test_constants_are_the_same_in_both_languages() -> None:
    defined = dict(re.findall(r"#define (\w+) (\d+)", (BPF / "select_maps.h").read_text()))
    assert int(defined["CANDIDATES"]) == plane_program.CANDIDATES
    assert int(defined["CACHE_BITS"]) == plane_program.CACHE_BITS
    assert 1 << int(defined["GENERATION_BITS"]) == plane_program.GENERATIONS
    assert 1 << int(defined["GROUP_BITS"]) >= plane_program.MOST_GROUPS
