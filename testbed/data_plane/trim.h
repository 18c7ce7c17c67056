/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Packets trimmed to their headers, as in SAI's proposal: a size, a code point, a queue.
 *
 * The sender of a UDP packet with the code point TRIMMABLE agrees that a switch trims it rather
 * than drop it.  Trimmed packets, and those with the code point CONTROL, take the queue of headers,
 * which is served first (testbed/linux/tc.py).  A veth does not carry a packet's priority, so every
 * switch reads the code point again.
 */
#pragma once
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#define TRIM_SIZE 64 /* bytes of a trimmed frame */
#define TRIMMABLE 3 /* code points, as in daemons/transport/endpoint.py */
#define CONTROL 11
#define TRIMMED 7
#define TRIMMED_AT_HOST 5
#define HEADERS 0x10020 /* class of the queue of headers, as in tc.py */
#define DATA_QUEUE 0x100000 /* queueing discipline of data, as in tc.py */

static __always_inline int is_for_headers(__u32 code_point)
{
	return code_point == CONTROL || code_point == TRIMMED || code_point == TRIMMED_AT_HOST;
}

/* Return 1 if a packet of `length` bytes is trimmed before a queue of at most `most` bytes with
 * `waiting` in it.
 *
 * A packet that would fill the queue is trimmed with probability 1/2, so that senders in step do
 * not lose the same packets each time.  NDP trims either the new packet or the last one in the
 * queue, but we cannot reach a packet in a queue. */
static __always_inline int is_to_trim(__u32 most, __u32 waiting, __u32 length, __u32 random)
{
	__s64 room = (__s64)most - waiting - length;

	return room < 0 || (room < length && (random & 1));
}

/* Cut a UDP packet without IP options to TRIM_SIZE bytes; 0, or an error.
 *
 * Pointers into the packet are invalid afterwards. */
static __always_inline int trim(struct __sk_buff *ctx, __u32 code_point)
{
	int error = bpf_skb_change_tail(ctx, TRIM_SIZE, 0);
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	struct udphdr *udp = (void *)(ip + 1);
	__u16 *words = (void *)ip;
	__u32 sum = 0;

	if (error || (void *)(udp + 1) > end)
		return error ?: -1;
	ip->tos = code_point << 2 | (ip->tos & 3);
	ip->tot_len = bpf_htons(TRIM_SIZE - sizeof(struct ethhdr));
	ip->check = 0;
	for (int i = 0; i < (int)sizeof(*ip) / 2; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~(sum + (sum >> 16));
	udp->len = bpf_htons(TRIM_SIZE - sizeof(struct ethhdr) - sizeof(*ip));
	udp->check = 0; /* none: its payload is gone */
	return 0;
}
