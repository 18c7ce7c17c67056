"""Memory of the packet engine (memory.h)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from weft.testbed.packets import network

PROGRAM = """
#include "memory.h"
#include <stdio.h>
#include <stdint.h>
int main(void)
{
	struct arena arena = { 0 };
	size_t chunks = 0;
	int wrong = 0;

	for (int i = 0; i < 200000; i++) {
		unsigned char *piece = arena_take(&arena, 1000);

		wrong |= !piece || (uintptr_t)piece % LINE_BYTES || piece[0] || piece[999];
		piece[0] = piece[999] = 1;
	}
	wrong |= !arena_take(&arena, 10 * HUGE_PAGE_BYTES);
	for (struct chunk *chunk = arena.last; chunk; chunk = chunk->before)
		chunks++;
	arena_free(&arena);
	printf("%zu %d", chunks, wrong);
}
"""


def test_many_pieces_share_few_chunks_and_are_zeroed_lines(tmp_path: Path) -> None:
    """Take 205 MB in pieces: of chunks of 2 MB some hundred, and smaller ones before."""
    source, program = tmp_path / "arena.c", tmp_path / "arena"
    source.write_text(PROGRAM)
    room = Path(network.__file__).parent
    subprocess.run(["gcc", "-O1", f"-I{room}", "-o", str(program), str(source)], check=True)
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    chunks, wrong = map(int, done.stdout.split())
    assert not wrong
    assert 98 < chunks < 120
