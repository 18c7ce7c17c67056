import struct
import subprocess
from pathlib import Path

import pytest

from weft.testbed.linux import netns, tc
from weft.testbed.linux.libbpf import BpfError, Object, filter_message
from weft.testbed.measure import queues
from weft.testbed.measure.ping import ping

PROGRAM = """
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
struct row { __u32 a; __u64 b; };
struct {
	__uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 1); __type(key, __u32); __type(value, struct row);
} rows SEC(".maps");
const volatile __u32 wanted;
SEC("tc") int drop(struct __sk_buff *skb) {
	__u32 key = 0;
	struct row *row = bpf_map_lookup_elem(&rows, &key);
	if (row && skb->len == wanted) { row->b++; return TC_ACT_SHOT; }
	return TC_ACT_OK;
}
char _license[] SEC("license") = "GPL";
"""  # noqa: E501
ASTRAY = PROGRAM.replace("return TC_ACT_OK;", "return *(int *)(long)skb->data;")


@pytest.fixture
def program(tmp_path, compiled):
    def build(source: str) -> Path:
        file = tmp_path / "small.bpf.c"
        file.write_text(source)
        return compiled(file)

    return build


@pytest.mark.kernel
def test_a_refusal_has_the_words_of_libbpf_and_of_the_verifier(program, tmp_path):
    garbage = tmp_path / "garbage.bpf.o"
    garbage.write_text("no program")
    with pytest.raises(BpfError, match="not a proper ELF"):
        Object(garbage)
    with pytest.raises(BpfError, match="invalid access to packet"):
        Object(program(ASTRAY))


@pytest.mark.kernel
def test_maps_are_typed_sized_and_walked(program):
    with Object(program(PROGRAM), entries={"rows": 3}) as loaded:
        rows = loaded.map("rows", "=I", "=I4xQ")
        for key in (7, 8, 9):
            rows[key,] = (key, key << 40)
        with pytest.raises(BpfError, match="entry"):
            rows[10,] = (0, 0)
        assert sorted(rows) == [(7,), (8,), (9,)]
        assert rows[8,] == (8, 8 << 40)
        del rows[8,]
        assert rows.get((8,)) is None
        with pytest.raises(KeyError):
            rows[8,]
        with pytest.raises(KeyError):
            del rows[8,]
        with pytest.raises(ValueError, match="bytes"):
            loaded.map("rows", "=I", "=IQ")
        with pytest.raises(BpfError, match="map nonesuch"):
            loaded.map("nonesuch", "=I", "=I")
        with pytest.raises(BpfError, match="program nonesuch"):
            loaded.program_fd("nonesuch")
    with pytest.raises(BpfError, match="Bad file descriptor"):
        rows.get((7,))
    with pytest.raises(BpfError, match="Bad file descriptor"):
        list(rows)


@pytest.mark.kernel
def test_a_filter_decides_about_arrivals_and_constants_reach_it(program, network):
    net = network("dcell:n=3,k=1")
    port, size = net.plan.ends[0][1], 14 + 20 + 8 + 100

    def filters(action: str) -> str:
        which = ["dev", "h0-eth1", "ingress", "pref", "3"]
        command = ["tc", "-n", net.plan.namespace(0), "filter", action, *which]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with Object(program(PROGRAM), constants=struct.pack("=I", size)) as loaded:
        rows = loaded.map("rows", "=I", "=I4xQ")
        rows[0,] = (0, 0)
        with net.at(0) as socket:
            message = filter_message(port, loaded.program_fd("drop"), "drop", priority=3)
            socket.request([tc.clsact(port), message])
            assert not ping(net, [(3, 0)], size_bytes=98).lost
            assert ping(net, [(3, 0), (0, 3)], size_bytes=100, timeout_s=0.2).lost_fraction == 1
            assert rows[0,] == (0, 2)
            assert "drop direct-action" in filters("show")
            filters("del")
        assert not ping(net, [(3, 0)], size_bytes=100).lost


@pytest.mark.kernel
def test_an_attached_program_is_gone_after_the_with(compiled):
    with Object(
        compiled(queues.OBJECT.with_suffix(".c")), constants=struct.pack("=II", 1, 2)
    ) as loaded:
        loaded.attach("dequeue")
        fd = loaded.program_fd("dequeue")
        assert "prog_id" in Path(f"/proc/self/fdinfo/{fd}").read_text()
    with pytest.raises(OSError, match="No such file"):
        Path(f"/proc/self/fdinfo/{fd}").read_text()


@pytest.mark.kernel
def test_it_works_from_within_a_namespace(program, spare_netns):
    with netns.inside(spare_netns.fd), Object(program(PROGRAM)) as loaded:
        assert loaded.program_fd("drop") > 0
