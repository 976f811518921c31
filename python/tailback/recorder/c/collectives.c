/* Bytes that collectives move, in total and to each partner. */
#include "recorder.h"

/* Where Fortran keeps its MPI_IN_PLACE: a common block of Open MPI, a pointer of MPICH. */
extern int mpi_fortran_in_place_ __attribute__((weak));
extern void *MPIR_F_MPI_IN_PLACE __attribute__((weak));

int tb_is_in_place(const void *buffer) {
  return buffer == MPI_IN_PLACE || (&mpi_fortran_in_place_ && buffer == &mpi_fortran_in_place_) ||
         (&MPIR_F_MPI_IN_PLACE && buffer == MPIR_F_MPI_IN_PLACE);
}

static long long count_of(const void *counts, int wide, uint64_t i) {
  return wide ? (long long)((const MPI_Count *)counts)[i] : ((const int *)counts)[i];
}

static uint64_t vector(const void *counts, MPI_Datatype type, int wide, uint64_t n) {
  long long total = 0;
  if (!counts) return 0;
  for (uint64_t i = 0; i < n; i++) total += count_of(counts, wide, i);
  return tb_bytes(total, type);
}

/* Totals of MPI_Alltoallv and MPI_Alltoallw, and what goes to whom. In place, as much leaves for
 * each partner as comes from it. */
static void exchange(const struct tb_collective *call, uint64_t n, struct tb_moved *moved) {
  const struct tb_vectors *v = &call->vectors;
  struct tb_parts in = {v->receive, v->receive_types, call->receive_type, v->wide, n};
  struct tb_parts out = {v->send, v->send_types, call->send_type, v->wide, n};
  if (!call->in_place) moved->received = tb_total(&in);
  moved->sizes = tb_number_sizes(call->in_place ? &in : &out, &moved->sent);
  if (call->in_place) moved->received = moved->sent;
}

/* Bytes as Score-P counts them: what a rank would move if it served every other by itself. */
struct tb_moved tb_moved_by(const struct tb_collective *call, const struct tb_comm *comm) {
  uint64_t n = (uint64_t)comm->size, rank = (uint64_t)comm->rank;
  int root = comm->inter ? call->root == MPI_ROOT : call->root == comm->rank;
  const struct tb_vectors *v = &call->vectors;
  struct tb_moved moved = {0};
  uint64_t *sent = &moved.sent, *received = &moved.received;
  switch (call->op) {
    case TB_BARRIER: break;
    case TB_BCAST: {
      uint64_t bytes = tb_bytes(call->sends, call->send_type);
      *sent = root ? n * bytes : 0;
      *received = bytes;
      break;
    }
    case TB_REDUCE: {
      uint64_t bytes = tb_bytes(call->sends, call->send_type);
      *sent = bytes;
      *received = root ? n * bytes : 0;
      break;
    }
    case TB_GATHER: {
      uint64_t bytes = root ? tb_bytes(call->receives, call->receive_type)
                            : tb_bytes(call->sends, call->send_type);
      *sent = bytes;
      *received = root ? n * bytes : 0;
      break;
    }
    case TB_SCATTER: {
      uint64_t bytes = root ? tb_bytes(call->sends, call->send_type)
                            : tb_bytes(call->receives, call->receive_type);
      *sent = root ? n * bytes : 0;
      *received = bytes;
      break;
    }
    case TB_GATHERV:
      if (root) {
        *received = vector(v->receive, call->receive_type, v->wide, n);
        if (!comm->inter) *sent = tb_bytes(count_of(v->receive, v->wide, rank), call->receive_type);
      } else {
        *sent = tb_bytes(call->sends, call->send_type);
      }
      break;
    case TB_SCATTERV:
      if (root) {
        *sent = vector(v->send, call->send_type, v->wide, n);
        if (!comm->inter) *received = tb_bytes(count_of(v->send, v->wide, rank), call->send_type);
      } else {
        *received = tb_bytes(call->receives, call->receive_type);
      }
      break;
    case TB_ALLGATHER:
    case TB_ALLTOALL:
      *received = n * tb_bytes(call->receives, call->receive_type);
      *sent = *received;
      break;
    case TB_ALLGATHERV:
      *received = vector(v->receive, call->receive_type, v->wide, n);
      *sent = call->in_place ? tb_bytes(count_of(v->receive, v->wide, rank), call->receive_type)
                             : tb_bytes(call->sends, call->send_type);
      break;
    case TB_ALLTOALLV:
    case TB_ALLTOALLW:
      exchange(call, n, &moved);
      break;
    case TB_ALLREDUCE:
      *sent = *received = n * tb_bytes(call->sends, call->send_type);
      break;
    case TB_REDUCE_SCATTER:
      *sent = vector(v->receive, call->send_type, v->wide, n);
      *received = comm->inter ? 0 : n * tb_bytes(count_of(v->receive, v->wide, rank), call->send_type);
      break;
    case TB_REDUCE_SCATTER_BLOCK:
      *sent = *received = n * tb_bytes(call->sends, call->send_type);
      break;
    case TB_SCAN:
      *sent = (n - rank) * tb_bytes(call->sends, call->send_type);
      *received = (rank + 1) * tb_bytes(call->sends, call->send_type);
      break;
    case TB_EXSCAN:
      *sent = (n - 1 - rank) * tb_bytes(call->sends, call->send_type);
      *received = rank * tb_bytes(call->sends, call->send_type);
      break;
  }
  return moved;
}
