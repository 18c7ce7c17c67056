/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The kernel's structures as far as our programs look into them.  libbpf finds each field's place
 * in the running kernel when it loads a program (CO-RE), so neither kernel headers nor a generated
 * vmlinux.h are needed. */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

#define QDISC_BUCKETS 16 /* of a device's table of queueing disciplines below its root */

struct ns_common {
	unsigned int inum;
};

struct net {
	struct hlist_head *dev_index_head;
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct netdev_queue;

struct net_device {
	struct netdev_queue *_tx;
	int ifindex;
	unsigned int mtu;
	struct hlist_node index_hlist;
	possible_net_t nd_net;
	struct hlist_head qdisc_hash[QDISC_BUCKETS];
};

struct Qdisc;

struct netdev_queue {
	struct net_device *dev;
	struct Qdisc *qdisc;
};

struct qdisc_skb_head {
	__u32 qlen;
};

/* Begins with bytes and packets sent, eight bytes each; their types differ between kernels. */
struct gnet_stats_basic_sync {
};

struct gnet_stats_queue {
	__u32 backlog;
};

struct Qdisc {
	struct hlist_node hash;
	__u32 handle;
	struct netdev_queue *dev_queue;
	struct qdisc_skb_head q;
	struct gnet_stats_basic_sync bstats;
	struct gnet_stats_queue qstats;
	long privdata[0];
};

/* What an exact link keeps behind its struct Qdisc (testbed/uml/kernel/06-sch-weft.patch). */
struct weft_sched_data {
	__u32 data_bytes;
};

struct sk_buff {
	struct net_device *dev;
	unsigned int len;
	__u32 priority;
	__be16 protocol;
	__u16 network_header;
	unsigned char *head;
};

#pragma clang attribute pop
