/* SPDX-License-Identifier: Apache-2.0
 *
 * A 3-D halo exchange, as many solvers do it: every rank owns a box of cells, exchanges its six
 * faces with its neighbours, relaxes the box once and agrees with all others on the residual.
 *
 * Boxes are thin slabs (CX x CY x CZ cells of VARS values), so the z faces are eight times larger
 * than the others; ranks are numbered x fastest, z slowest, so z neighbours are far apart in rank
 * order. That is what many codes do, and what the default placement does worst.
 *
 *   halo3d X Y Z STEPS [periodic|open]      needs X*Y*Z ranks
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CX = 64, CY = 64, CZ = 8, VARS = 16, DIRECTIONS = 6, FIRST_TAG = 101 };

#define CELL(v, z, y, x) ((((size_t)(v) * (CZ + 2) + (z)) * (CY + 2) + (y)) * (CX + 2) + (x))

static const int face_values[3] = {CY * CZ * VARS, CX *CZ *VARS, CX *CY *VARS};

/* Copy the face of `axis` at plane `at` out of the box (pack) or into it. */
static void copy_face(float *box, float *face, int axis, int at, int pack)
{
    const int extent[3] = {CX, CY, CZ};
    const int a = axis == 0 ? 1 : 0, b = axis == 2 ? 1 : 2;
    size_t n = 0;
    for (int v = 0; v < VARS; v++) {
        for (int j = 1; j <= extent[b]; j++) {
            for (int i = 1; i <= extent[a]; i++) {
                int c[3];
                c[axis] = at;
                c[a] = i;
                c[b] = j;
                float *cell = &box[CELL(v, c[2], c[1], c[0])];
                if (pack)
                    face[n++] = *cell;
                else
                    *cell = face[n++];
            }
        }
    }
}

/* One relaxation sweep over the box; returns the sum of the changes. */
static float relax(const float *restrict old, float *restrict box)
{
    float change = 0.0f;
    for (int v = 0; v < VARS; v++) {
        for (int z = 1; z <= CZ; z++) {
            for (int y = 1; y <= CY; y++) {
                for (int x = 1; x <= CX; x++) {
                    const float *c = &old[CELL(v, z, y, x)];
                    const float mean = (c[-1] + c[1] + c[-(CX + 2)] + c[CX + 2] +
                                        c[-(CX + 2) * (CY + 2)] + c[(CX + 2) * (CY + 2)]) *
                                       (1.0f / 6.0f);
                    change += mean - c[0];
                    box[CELL(v, z, y, x)] = mean;
                }
            }
        }
    }
    return change;
}

int main(int argc, char **argv)
{
    int size, rank, dims[3] = {0, 0, 0}, steps = 0, periodic = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc > 4) {
        for (int axis = 0; axis < 3; axis++)
            dims[axis] = atoi(argv[1 + axis]);
        steps = atoi(argv[4]);
        periodic = argc < 6 || strcmp(argv[5], "open") != 0;
    }
    if (steps < 1 || dims[0] < 1 || dims[1] < 1 || dims[2] < 1 ||
        (long)dims[0] * dims[1] * dims[2] != size) {
        if (rank == 0)
            fprintf(stderr, "usage: halo3d X Y Z STEPS [periodic|open], on X*Y*Z ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }

    /* Neighbour in direction 2 * axis is one step up, 2 * axis + 1 one step down. */
    int neighbour[DIRECTIONS];
    for (int axis = 0, stride = 1; axis < 3; stride *= dims[axis++]) {
        const int at = rank / stride % dims[axis];
        for (int down = 0; down < 2; down++) {
            int to = at + (down ? -1 : 1);
            if (periodic)
                to = (to + dims[axis]) % dims[axis];
            const int inside = to >= 0 && to < dims[axis] && to != at;
            neighbour[2 * axis + down] = inside ? rank + (to - at) * stride : -1;
        }
    }

    const size_t cells = CELL(VARS, 0, 0, 0);
    float *old = calloc(cells, sizeof *old), *box = calloc(cells, sizeof *box);
    float *out[DIRECTIONS], *in[DIRECTIONS];
    int lost = !old || !box;
    for (int d = 0; d < DIRECTIONS; d++) {
        out[d] = malloc(sizeof(float) * face_values[d / 2]);
        in[d] = malloc(sizeof(float) * face_values[d / 2]);
        lost = lost || !out[d] || !in[d];
    }
    if (lost) {
        fprintf(stderr, "halo3d: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (size_t i = 0; i < cells; i++)
        old[i] = (float)((i * 2654435761u + (size_t)rank) % 1000) * 1e-3f;
    memcpy(box, old, cells * sizeof *box);

    double residual = 0.0;
    for (int step = 0; step < steps; step++) {
        static const int extent[3] = {CX, CY, CZ};
        MPI_Request request[2 * DIRECTIONS];
        int open = 0;
        for (int d = 0; d < DIRECTIONS; d++)
            if (neighbour[d] >= 0)
                copy_face(old, out[d], d / 2, d % 2 ? 1 : extent[d / 2], 1);
        /* What a neighbour sends upwards (tag 101, 103, 105) comes from below. */
        for (int d = 0; d < DIRECTIONS; d++)
            if (neighbour[d ^ 1] >= 0)
                MPI_Irecv(in[d], face_values[d / 2], MPI_FLOAT, neighbour[d ^ 1], FIRST_TAG + d,
                          MPI_COMM_WORLD, &request[open++]);
        for (int d = 0; d < DIRECTIONS; d++)
            if (neighbour[d] >= 0)
                MPI_Isend(out[d], face_values[d / 2], MPI_FLOAT, neighbour[d], FIRST_TAG + d,
                          MPI_COMM_WORLD, &request[open++]);
        MPI_Waitall(open, request, MPI_STATUSES_IGNORE);
        for (int d = 0; d < DIRECTIONS; d++)
            if (neighbour[d ^ 1] >= 0)
                copy_face(old, in[d], d / 2, d % 2 ? extent[d / 2] + 1 : 0, 0);

        double change = relax(old, box);
        MPI_Allreduce(&change, &residual, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        float *swap = old;
        old = box;
        box = swap;
    }
    if (rank == 0)
        printf("%d ranks, %d steps, residual %.6g\n", size, steps, residual);

    for (int d = 0; d < DIRECTIONS; d++) {
        free(out[d]);
        free(in[d]);
    }
    free(old);
    free(box);
    MPI_Finalize();
    return 0;
}
