/* SPDX-License-Identifier: MIT */
/* Memory in large pages, which save searches for addresses: of arrays, and of many objects that are
 * freed at once. */
#pragma once
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINE_BYTES 64 /* of the processor's cache */
#define HUGE_PAGE_BYTES (2u << 20)
#ifdef __SANITIZE_ADDRESS__
#define FIRST_CHUNK_BYTES 0 /* a chunk for each piece, so that its bounds are watched */
#else
#define FIRST_CHUNK_BYTES (64u << 10)
#endif

/* Return memory for many objects, 0 without. */
static inline void *allocate(size_t count, size_t size)
{
	size_t bytes = count * size;
	size_t unit = bytes < HUGE_PAGE_BYTES ? LINE_BYTES : HUGE_PAGE_BYTES;
	void *memory;

	bytes = (bytes + unit - 1) / unit * unit;
	memory = aligned_alloc(unit, bytes);
	if (memory && unit == HUGE_PAGE_BYTES)
		madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

/* The first line of a chunk; what is taken follows. */
struct chunk {
	_Alignas(LINE_BYTES) struct chunk *before;
};

/* Chunks of memory, each twice as large as the one before up to a large page, from which one thread
 * takes pieces.  Zeroes are an arena without any. */
struct arena {
	struct chunk *last;
	char *next;
	size_t left, chunk_bytes;
};

/* Return zeroed memory that begins a line and is freed with the arena, 0 without. */
static inline void *arena_take(struct arena *arena, size_t bytes)
{
	char *taken;

	bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
	if (bytes > arena->left) {
		size_t usual = arena->last ? 2 * arena->chunk_bytes : FIRST_CHUNK_BYTES, room;
		struct chunk *chunk;

		if (usual > HUGE_PAGE_BYTES)
			usual = HUGE_PAGE_BYTES;
		room = usual < bytes + sizeof(*chunk) ? bytes + sizeof(*chunk) : usual;
		chunk = allocate(1, room);
		if (!chunk)
			return 0;
		chunk->before = arena->last;
		*arena = (struct arena){ chunk, (char *)(chunk + 1), room - sizeof(*chunk), usual };
	}
	taken = arena->next;
	arena->next += bytes;
	arena->left -= bytes;
	return memset(taken, 0, bytes);
}

static inline void arena_free(struct arena *arena)
{
	for (struct chunk *chunk = arena->last, *before; chunk; chunk = before) {
		before = chunk->before;
		free(chunk);
	}
}
