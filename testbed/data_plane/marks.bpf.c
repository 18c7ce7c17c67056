/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Marks of congestion at the egress hook of a switch's port, for packets of the kernel's own routes.
 *
 * A packet of an ECN-capable transport, of IPv4 or IPv6, is marked if as many packets wait as the
 * threshold says, as DCTCP asks of switches (SIGCOMM 2010, section 3.1).
 */
#include "queues.h"
#include <linux/pkt_cls.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} threshold_packets SEC(".maps");

SEC("tc")
int mark(struct __sk_buff *ctx)
{
	__u32 zero = 0;
	__u32 *threshold = bpf_map_lookup_elem(&threshold_packets, &zero);

	if (threshold && root_queue_length(ctx, ctx->ifindex, 0) >= *threshold)
		bpf_skb_ecn_set_ce(ctx);
	return TC_ACT_UNSPEC; /* on to other filters */
}

char _license[] SEC("license") = "Dual MIT/GPL";
