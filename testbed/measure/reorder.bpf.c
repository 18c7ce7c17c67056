/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Reordering and one-way delay of the packets of each flow.
 *
 * At its first switch each packet with payload gets its number within its flow, in the IPv4 identification, which has no
 * other use with "don't fragment".  At the destination numbers are compared as in RFC 4737: a packet is late if one with a
 * higher number arrived before it; its extent is the number of packets since the first such one.  TCP does not see the
 * numbers.  Offloads must be off, as at every port of a network.
 */
#include "../data_plane/kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#define DONT_FRAGMENT 0x4000
#define SERVERS 10 /* the first octet of a server's own address */
#define WINDOW 1024 /* of a flow's packets whose times and places are kept, a power of two */
#define EXTENTS 256 /* the last for this and all longer ones */
#define DELAYS 128 /* four for each doubling of the time in units of 1.024 us */

struct flow_key {
	__be32 source, destination;
	__be32 ports;
	__u32 protocol;
};

struct flow {
	struct bpf_spin_lock lock;
	__u32 slot; /* of its packets in sent_ns and passed */
	__u32 next_seq; /* behind the highest TCP sequence number sent */
	__u32 expected; /* number of the next packet if all come in order */
	__u32 sent;
	__u32 received;
	__u32 late;
	__u32 retransmitted; /* packets sent that begin before next_seq */
	__u64 bytes;
	__u64 delay_ns; /* sum over those received */
};

_Static_assert(sizeof(struct flow_key) == 16, "reordering.KEY");
_Static_assert(sizeof(struct flow) == 48, "reordering.FLOW");

struct totals {
	__u64 extents[EXTENTS];
	__u64 delays[DELAYS];
};

_Static_assert(sizeof(struct totals) == 8 * (EXTENTS + DELAYS), "reordering.EXTENTS, DELAYS");

const volatile __u32 slots = 1; /* a power of two */
__u32 next_slot;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* passed: the place in the order of arrival of the first higher number */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WINDOW); /* times slots */
	__type(key, __u32);
	__type(value, __u64);
} sent_ns SEC(".maps"), passed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct totals);
} histograms SEC(".maps");

/* Whether an address carries a layer (FatPaths), a way (PR, DFR, TAR), in its first octet. */
static __always_inline int in_layer(__be32 address)
{
	return (*(__u8 *)&address & 0xc0) == 64;
}

struct packet {
	struct iphdr *ip;
	struct flow_key key;
	__u32 payload_bytes;
	__u32 seq;
};

/* Whether the packet has payload of a flow, and whose. */
static __always_inline int parse(struct __sk_buff *ctx, struct packet *packet)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	__u32 headers = sizeof(*ip);

	if (ctx->protocol != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end || ip->ihl != 5 ||
	    ip->frag_off != bpf_htons(DONT_FRAGMENT))
		return 0;
	if (ip->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = (void *)(ip + 1);

		if ((void *)(tcp + 1) > end)
			return 0;
		headers += tcp->doff * 4;
		packet->seq = bpf_ntohl(tcp->seq);
		packet->key.ports = *(__be32 *)tcp;
	} else if (ip->protocol == IPPROTO_UDP) {
		struct udphdr *udp = (void *)(ip + 1);

		if ((void *)(udp + 1) > end)
			return 0;
		headers += sizeof(*udp);
		packet->key.ports = *(__be32 *)udp;
	} else {
		return 0;
	}
	packet->ip = ip;
	packet->key.source = ip->saddr;
	packet->key.destination = ip->daddr;
	/* a flow may change its layer, and is told by the server's own address */
	if (in_layer(ip->daddr))
		*(__u8 *)&packet->key.destination = SERVERS;
	packet->key.protocol = ip->protocol;
	packet->payload_bytes = bpf_ntohs(ip->tot_len) - headers;
	return bpf_ntohs(ip->tot_len) > headers;
}

static __always_inline struct flow *flow_of(const struct flow_key *key)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, key);
	struct flow fresh = {};

	if (flow)
		return flow;
	fresh.slot = __sync_fetch_and_add(&next_slot, 1) & (slots - 1);
	bpf_map_update_elem(&flows, key, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&flows, key);
}

static __always_inline __u64 *entry(void *map, const struct flow *flow, __u32 number)
{
	__u32 index = flow->slot * WINDOW + (number & (WINDOW - 1));

	return bpf_map_lookup_elem(map, &index);
}

static __always_inline void set_identification(struct iphdr *ip, __be16 identification)
{
	/* RFC 1624: HC' = ~(~HC + ~m + m') */
	__u32 sum = (__u16)~ip->check + (__u16)~ip->id + identification;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->id = identification;
	ip->check = ~sum;
}

SEC("tc")
int stamp(struct __sk_buff *ctx)
{
	struct packet packet = {};
	struct flow *flow;
	__u32 number;
	__u64 *at;

	if (!parse(ctx, &packet))
		return TC_ACT_UNSPEC;
	flow = flow_of(&packet.key);
	if (!flow)
		return TC_ACT_UNSPEC;
	bpf_spin_lock(&flow->lock);
	number = flow->sent++;
	if (number && packet.key.protocol == IPPROTO_TCP &&
	    (__s32)(packet.seq - flow->next_seq) < 0)
		flow->retransmitted++;
	else
		flow->next_seq = packet.seq + packet.payload_bytes;
	bpf_spin_unlock(&flow->lock);
	set_identification(packet.ip, bpf_htons(number));
	at = entry(&sent_ns, flow, number);
	if (at)
		*at = bpf_ktime_get_ns();
	return TC_ACT_UNSPEC;
}

/* In bucket b < 8 are the times of b units; above, those from (4 + b % 4) << (b / 4 - 1) units on. */
static __always_inline __u32 delay_bucket(__u64 ns)
{
	__u32 shifted = ns >> 10, log = 0;

	for (int i = 0; i < 31 && shifted > 7; i++) {
		shifted >>= 1;
		log++;
	}
	return 4 * log + shifted;
}

SEC("tc")
int check(struct __sk_buff *ctx)
{
	__u64 now = bpf_ktime_get_ns(), *at;
	__u32 place, number, first, late, zero = 0, bucket;
	struct packet packet = {};
	struct totals *totals;
	struct flow *flow;
	__s16 ahead;

	if (!parse(ctx, &packet))
		return TC_ACT_UNSPEC;
	flow = bpf_map_lookup_elem(&flows, &packet.key);
	totals = bpf_map_lookup_elem(&histograms, &zero);
	if (!flow || !totals)
		return TC_ACT_UNSPEC;
	bpf_spin_lock(&flow->lock);
	first = flow->expected;
	ahead = bpf_ntohs(packet.ip->id) - (__u16)first;
	number = first + ahead;
	late = ahead < 0;
	place = flow->received++;
	flow->bytes += packet.payload_bytes;
	if (late)
		flow->late++;
	else
		flow->expected = number + 1;
	bpf_spin_unlock(&flow->lock);
	for (__u32 i = 0; i < WINDOW && (__s32)(number - first - i) > 0; i++) {
		at = entry(&passed, flow, first + i);
		if (at)
			*at = place;
	}
	at = entry(&passed, flow, number);
	if (late && at) {
		bucket = place - (__u32)*at;
		totals->extents[bucket < EXTENTS ? bucket : EXTENTS - 1]++;
	}
	at = entry(&sent_ns, flow, number);
	if (at) {
		bucket = delay_bucket(now - *at);
		totals->delays[bucket < DELAYS ? bucket : DELAYS - 1]++;
		__sync_fetch_and_add(&flow->delay_ns, now - *at);
	}
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual MIT/GPL";
