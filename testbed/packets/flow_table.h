/* SPDX-License-Identifier: MIT */
/* The flows that switches note and daemons place (DAR), of all switches: struct flow_entry of
 * ../data_plane/select_maps.h.  A message is a flow. */
#pragma once
#include <stdint.h>
#include <stdlib.h>

#define NO_FLOW UINT32_MAX

/* A flow at a switch.
 *
 * noted: 0 until it has sent enough.  port: of a flow from a host of the switch, its output port, which
 * daemons change; else the port at the other end of the link by which its packets come.
 * moved_ns: last change of port, queued_ns: last report of a long queue by a spine; 0: never.
 * sequence: highest number of an incoming packet.  next: of the switch's flows. */
struct noted_flow {
	uint32_t node, message, port, sequence, next, noted;
	uint64_t last_ns, moved_ns, queued_ns, bytes;
};

/* slots: number of the flow, by a hash of node and message; a power of two, at most half of them used.
 * first: of each node. */
struct flow_table {
	struct noted_flow *flows;
	uint32_t *slots, *first;
	uint32_t count, most;
};

static inline uint32_t flow_slot(const struct flow_table *table, uint32_t node, uint32_t message)
{
	uint32_t mask = 2 * table->most - 1,
		 slot = (node * 0x9e3779b1u ^ message * 0x85ebca6bu) & mask;

	for (;; slot = (slot + 1) & mask) {
		uint32_t flow = table->slots[slot];

		if (flow == NO_FLOW ||
		    (table->flows[flow].node == node && table->flows[flow].message == message))
			return slot;
	}
}

/* Return a flow at a switch; 0 if it has no entry. */
static inline struct noted_flow *flow_find(struct flow_table *table, uint32_t node,
					   uint32_t message)
{
	uint32_t flow = table->most ? table->slots[flow_slot(table, node, message)] : NO_FLOW;

	return flow == NO_FLOW ? 0 : &table->flows[flow];
}

/* Make room for twice as many flows; 0 without memory. */
static inline int flow_table_grow(struct flow_table *table)
{
	uint32_t most = table->most ? 2 * table->most : 1024;
	struct noted_flow *flows = realloc(table->flows, most * sizeof(*flows));
	uint32_t *slots = flows ? realloc(table->slots, 2 * most * sizeof(*slots)) : 0;

	if (flows)
		table->flows = flows;
	if (!slots)
		return 0;
	table->slots = slots;
	table->most = most;
	for (uint32_t i = 0; i < 2 * most; i++)
		slots[i] = NO_FLOW;
	for (uint32_t i = 0; i < table->count; i++)
		slots[flow_slot(table, flows[i].node, flows[i].message)] = i;
	return 1;
}

/* Return a new entry of a flow that has none; 0 without memory. */
static inline struct noted_flow *flow_add(struct flow_table *table, uint32_t node, uint32_t message)
{
	if (table->count == table->most && !flow_table_grow(table))
		return 0;
	table->slots[flow_slot(table, node, message)] = table->count;
	table->flows[table->count] =
		(struct noted_flow){ .node = node, .message = message, .next = table->first[node] };
	table->first[node] = table->count;
	return &table->flows[table->count++];
}
