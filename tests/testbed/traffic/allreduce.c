/* SPDX-License-Identifier: MIT */
/* All-reduce of BYTES three times: rank 0 prints the seconds of each, and each rank where it ran and the sum.  With
 * RANK and STATUS that rank then ends with that status, or by that signal if it is negative, and the others wait. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int rank, ranks, count = atoi(argv[1]) / sizeof(float);
	float *own = malloc(count * sizeof(float)), *sum = malloc(count * sizeof(float));
	char host[99];

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 0; i < count; i++)
		own[i] = rank;
	gethostname(host, sizeof(host));
	MPI_Barrier(MPI_COMM_WORLD);
	for (int turn = 0; turn < 3; turn++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double began = MPI_Wtime();
		MPI_Allreduce(own, sum, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		if (rank == 0)
			printf("seconds %.9f\n", MPI_Wtime() - began);
	}
	printf("rank %d of %d on %s: %g\n", rank, ranks, host, sum[count - 1]);
	MPI_Barrier(MPI_COMM_WORLD);
	if (argc > 3 && rank == atoi(argv[2])) {
		int status = atoi(argv[3]);

		if (status < 0)
			raise(-status);
		exit(status);
	}
	if (argc > 3)
		sleep(1000);
	MPI_Finalize();
	return 0;
}
