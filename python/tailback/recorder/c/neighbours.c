/* Neighbourhood collectives. OTF2 has no record of them, so each is recorded by its messages: a
 * non-blocking send to every neighbour and a non-blocking receive from every neighbour, all complete
 * at the end of the call, or where the request of a non-blocking or persistent one is found complete.
 * Their tags are above any that a program can use. */
#include "recorder.h"

#define TB_NEIGHBOUR_TAG 0x80000000u

struct neighbours {
  int ins, outs;
  int *in, *out; /* ranks of the communicator */
  int grid;
};

static int *ranks(int n) {
  int *room = malloc(sizeof *room * (size_t)(n > 0 ? n : 1));
  if (!room) abort();
  return room;
}

/* The neighbours in the order of the buffers (MPI 4.0, section 8.6); none without a topology. */
static struct neighbours find(MPI_Comm comm) {
  struct neighbours all = {0};
  int kind = MPI_UNDEFINED, dimensions = 0, weighted, rank;
  PMPI_Topo_test(comm, &kind);
  if (kind == MPI_CART) {
    PMPI_Cartdim_get(comm, &dimensions);
    all.grid = 1;
    all.ins = all.outs = 2 * dimensions;
    all.in = ranks(all.ins);
    all.out = ranks(all.outs);
    for (int i = 0; i < dimensions; i++) PMPI_Cart_shift(comm, i, 1, &all.in[2 * i], &all.in[2 * i + 1]);
    memcpy(all.out, all.in, sizeof *all.in * (size_t)all.ins);
  } else if (kind == MPI_GRAPH) {
    PMPI_Comm_rank(comm, &rank);
    PMPI_Graph_neighbors_count(comm, rank, &all.ins);
    all.outs = all.ins;
    all.in = ranks(all.ins);
    all.out = ranks(all.outs);
    PMPI_Graph_neighbors(comm, rank, all.ins, all.in);
    memcpy(all.out, all.in, sizeof *all.in * (size_t)all.ins);
  } else if (kind == MPI_DIST_GRAPH) {
    PMPI_Dist_graph_neighbors_count(comm, &all.ins, &all.outs, &weighted);
    all.in = ranks(all.ins);
    all.out = ranks(all.outs);
    int *in_weights = ranks(all.ins), *out_weights = ranks(all.outs);
    PMPI_Dist_graph_neighbors(comm, all.ins, all.in, in_weights, all.outs, all.out, out_weights);
    free(in_weights);
    free(out_weights);
  }
  return all;
}

/* Bytes to or from neighbour i. */
static uint64_t bytes(const void *counts, const MPI_Datatype *types, int wide, long long one,
                      MPI_Datatype type, int i) {
  if (counts) one = wide ? (long long)((const MPI_Count *)counts)[i] : ((const int *)counts)[i];
  return tb_bytes(one, types ? types[i] : type);
}

struct tb_exchange *tb_exchange_of(struct tb_thread *thread, const struct tb_collective *call) {
  const struct tb_vectors *v = &call->vectors;
  struct neighbours all = find(call->comm);
  struct tb_exchange *out = malloc(sizeof *out + sizeof *out->part * (size_t)(all.ins + all.outs));
  if (!out) abort();
  uint64_t comm = (uint64_t)tb_comm_of(thread, call->comm)->id << 32;
  out->ins = out->messages = 0;
  /* On a grid, what leaves in a direction arrives from the opposite one: with two ranks along a
   * dimension both are the same neighbour. */
  for (int i = 0; i < all.ins; i++)
    if (all.in[i] >= 0)
      out->part[out->messages++] = (struct tb_part){
          all.in[i], comm | (TB_NEIGHBOUR_TAG + (uint32_t)(all.grid ? i ^ 1 : 0)),
          bytes(v->receive, v->receive_types, v->wide, call->receives, call->receive_type, i)};
  out->ins = out->messages;
  for (int i = 0; i < all.outs; i++)
    if (all.out[i] >= 0)
      out->part[out->messages++] = (struct tb_part){
          all.out[i], comm | (TB_NEIGHBOUR_TAG + (uint32_t)(all.grid ? i : 0)),
          bytes(v->send, v->send_types, v->wide, call->sends, call->send_type, i)};
  free(all.in);
  free(all.out);
  return out;
}

static void message(struct tb_thread *thread, enum tb_kind kind, const struct tb_part *part,
                    uint64_t id) {
  uint64_t *word = tb_put(thread, kind, 0, 0, (uint32_t)part->peer);
  word[0] = part->channel;
  word[1] = part->bytes;
  word[2] = id;
}

void tb_post_exchange(struct tb_thread *thread, const struct tb_exchange *all, uint64_t first) {
  for (int i = 0; i < all->ins; i++)
    *tb_put(thread, TB_RECEIVING, 0, 0, 0) = first + (uint64_t)i;
  for (int i = all->ins; i < all->messages; i++)
    message(thread, TB_ISEND, &all->part[i], first + (uint64_t)i);
}

void tb_complete_exchange(struct tb_thread *thread, const struct tb_exchange *all, uint64_t first) {
  for (int i = 0; i < all->ins; i++)
    message(thread, TB_IRECEIVE, &all->part[i], first + (uint64_t)i);
  for (int i = all->ins; i < all->messages; i++)
    *tb_put(thread, TB_SENT, 0, 0, 0) = first + (uint64_t)i;
}

void tb_neighbours(struct tb_thread *thread, const struct tb_collective *call) {
  struct tb_exchange *all = tb_exchange_of(thread, call);
  uint64_t first = tb_new_ids((uint64_t)all->messages);
  tb_post_exchange(thread, all, first);
  tb_complete_exchange(thread, all, first);
  free(all);
}

/* Datatypes of Fortran, one for each neighbour that this rank sends to or receives from. */
MPI_Datatype *tb_neighbour_types(const MPI_Fint *types, MPI_Comm comm, int sends) {
  struct neighbours all = find(comm);
  int n = sends ? all.outs : all.ins;
  MPI_Datatype *out = malloc(sizeof *out * (size_t)(n > 0 ? n : 1));
  if (!out) abort();
  for (int i = 0; i < n; i++) out[i] = PMPI_Type_f2c(types[i]);
  free(all.in);
  free(all.out);
  return out;
}
