/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Declaration of maps, and steps on a packet, that several programs share. */
#pragma once
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

/* Declaration of a BPF map. */
#define MAP(name, kind, entries, flags, key_type, value_type)                                      \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_##kind);                                                 \
		__uint(max_entries, entries);                                                      \
		__uint(map_flags, flags);                                                          \
		__type(key, key_type);                                                             \
		__type(value, value_type);                                                         \
	} name SEC(".maps")

#define FRAGMENT_OFFSET 0x1fff
#define FRAGMENT 0x3fff /* FRAGMENT_OFFSET and the flag "more fragments" */

/* Other processors, or user space, may write x meanwhile: access it exactly once. */
#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

static __always_inline int has_ports(const struct iphdr *ip)
{
	return ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP;
}

/* Return a checksum after 16 of the bits that it covers have changed (RFC 1624). */
static __always_inline __u16 updated_checksum(__u16 checksum, __u16 before, __u16 after)
{
	__u32 sum = (__u16)~checksum + (__u16)~before + after;

	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

/* Update the checksum of TCP or UDP after a change of the first half of an address.
 *
 * The packet may move in memory: pointers into it are invalid afterwards. */
static __always_inline void update_transport_checksum(struct __sk_buff *ctx, const struct iphdr *ip,
						      __u16 before, __u16 after)
{
	__u32 offset = sizeof(struct ethhdr) + ip->ihl * 4;

	if (ip->frag_off & bpf_htons(FRAGMENT_OFFSET)) /* a later fragment has no header */
		return;
	if (ip->protocol == IPPROTO_TCP)
		bpf_l4_csum_replace(ctx, offset + offsetof(struct tcphdr, check), before, after,
				    BPF_F_PSEUDO_HDR | 2);
	else if (ip->protocol == IPPROTO_UDP)
		bpf_l4_csum_replace(ctx, offset + offsetof(struct udphdr, check), before, after,
				    BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0 | 2);
}

/* Put the packet into the queue of device `ifindex`.
 *
 * A packet keeps its sender's socket across namespaces, and the sender's TCP would count our queue
 * as its own backlog.  The kernel's routing drops the socket; a clone has none either. */
static __always_inline int transmit(struct __sk_buff *ctx, __u32 ifindex)
{
	if (!ctx->sk)
		return bpf_redirect(ifindex, 0);
	bpf_clone_redirect(ctx, ifindex, 0);
	return TC_ACT_STOLEN;
}
