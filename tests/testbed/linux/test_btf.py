"""Layouts from BTF against those that ctypes works out by C's rules."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.testbed.linux import btf, libbpf

SOURCE = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct inner { __u32 a; __u16 b[2]; };
typedef __u64 time_ns;
struct sample {
	__u8 flag; __u16 half; __u32 word; time_ns at; const volatile __u16 row[3]; struct inner pair[2]; __u8 last;
};
struct with_pointer { __u32 n; void *where; };
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, struct sample);
} samples SEC(".maps");
struct with_pointer kept = {};
enum colour { RED, GREEN } chosen = GREEN;
SEC("tc") int nothing(struct __sk_buff *ctx) { return kept.n + chosen; }
char _license[] SEC("license") = "GPL";
"""  # noqa: E501


class Inner(ctypes.Structure):
    _fields_ = (("a", ctypes.c_uint32), ("b", ctypes.c_uint16 * 2))


class Sample(ctypes.Structure):
    _fields_ = (
        ("flag", ctypes.c_uint8),
        ("half", ctypes.c_uint16),
        ("word", ctypes.c_uint32),
        ("at", ctypes.c_uint64),
        ("row", ctypes.c_uint16 * 3),
        ("pair", Inner * 2),
        ("last", ctypes.c_uint8),
    )


@pytest.fixture
def sample(compiled: Callable[[Path], Path], tmp_path: Path) -> Path:
    source = tmp_path / "sample.bpf.c"
    source.write_text(SOURCE)
    return compiled(source)


def test_fields_lie_where_c_puts_them(sample: Path) -> None:
    layout = btf.layouts(sample)["sample"]
    assert layout.size == ctypes.sizeof(Sample)
    assert list(layout.fields) == [name for name, _ in Sample._fields_]
    for name, field in layout.fields.items():
        place = getattr(Sample, name)
        assert (field.offset, field.size) == (place.offset, place.size), name


def test_what_is_packed_is_what_c_reads(sample: Path) -> None:
    layout = btf.layouts(sample)["sample"]
    values = {
        "flag": 200,
        "word": 1 << 31,
        "at": 1 << 60,
        "row": [1, 2, 65535],
        "pair": [3, 4, 5, 6, 7, 8],
        "last": 9,
    }
    packed = layout.pack(values)
    read = Sample.from_buffer_copy(packed)
    assert (read.flag, read.half, read.word, read.at, read.last) == (200, 0, 1 << 31, 1 << 60, 9)
    assert list(read.row) == [1, 2, 65535]
    assert [(element.a, list(element.b)) for element in read.pair] == [(3, [4, 5]), (6, [7, 8])]
    assert {name: list(numbers) for name, numbers in layout.unpack(packed).items()} == {
        "half": [0],
        **{name: [value] if isinstance(value, int) else value for name, value in values.items()},
    }


def test_what_there_is_not_is_refused_and_what_is_no_integer_left_out(
    sample: Path, tmp_path: Path
) -> None:
    layouts = btf.layouts(sample)
    with pytest.raises(ValueError, match=r"no field wrd, it has flag, half, word"):
        layouts["sample"].pack({"wrd": 1})
    assert "with_pointer" not in layouts
    with pytest.raises(libbpf.BpfError, match=r"test_btf\.py: no BTF; `make bpf` compiles it"):
        btf.layouts(Path(__file__))
