/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Gaps between packets with payload of each flow, at the egress hook of each host.
 *
 * A histogram with four classes for each doubling, in units of 1.024 us.  A flow is addresses, protocol and ports.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#define CLASSES 128

struct key {
	__be32 source, destination;
	__be32 ports;
	__u32 protocol;
};

struct histogram {
	__u64 gaps[CLASSES];
	__u64 flows;
};

_Static_assert(sizeof(struct histogram) == 8 * (CLASSES + 1), "flow_gaps.CLASSES");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct key);
	__type(value, __u64);
} last_ns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct histogram);
} histograms SEC(".maps");

/* Return 1 and set the flow if the packet has payload. */
static __always_inline int flow_of(struct key *key, const struct iphdr *ip, const void *end)
{
	const struct tcphdr *tcp = (const void *)(ip + 1);
	__u32 headers = sizeof(*ip);

	if ((const void *)(tcp + 1) <= end && ip->protocol == IPPROTO_TCP)
		headers += tcp->doff * 4;
	else if ((const void *)tcp + sizeof(struct udphdr) <= end && ip->protocol == IPPROTO_UDP)
		headers += sizeof(struct udphdr);
	else
		return 0;
	key->source = ip->saddr;
	key->destination = ip->daddr & bpf_htonl(0xffffff); /* the first octet may say a layer */
	key->ports = *(const __be32 *)tcp;
	key->protocol = ip->protocol;
	return bpf_ntohs(ip->tot_len) > headers;
}

/* In class c < 8 are the times of c units; above, those from (4 + c % 4) << (c / 4 - 1) units on. */
static __always_inline __u32 class_of(__u64 ns)
{
	__u32 shifted = ns >> 10 > ~0U ? ~0U : ns >> 10, log = 0;

	for (int i = 0; i < 31 && shifted > 7; i++) {
		shifted >>= 1;
		log++;
	}
	return 4 * log + shifted;
}

SEC("tc")
int gaps(struct __sk_buff *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	__u64 now = ctx->tstamp ?: bpf_ktime_get_ns(), *last; /* TCP has noted when it sends */
	struct histogram *histogram;
	__u32 zero = 0, place;
	struct key key = {};

	if (ctx->protocol != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end || ip->ihl != 5 ||
	    !flow_of(&key, ip, end))
		return TC_ACT_UNSPEC;
	histogram = bpf_map_lookup_elem(&histograms, &zero);
	if (!histogram)
		return TC_ACT_UNSPEC;
	last = bpf_map_lookup_elem(&last_ns, &key);
	if (!last) {
		bpf_map_update_elem(&last_ns, &key, &now, BPF_ANY);
		histogram->flows++;
		return TC_ACT_UNSPEC;
	}
	place = class_of(now > *last ? now - *last : 0);
	*last = now;
	if (place < CLASSES)
		histogram->gaps[place]++;
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual MIT/GPL";
