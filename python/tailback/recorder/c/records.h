/* Records of the event files: what recorder writes and converter reads. */
#ifndef TAILBACK_RECORDS_H
#define TAILBACK_RECORDS_H

#include <stdint.h>

/* kind, words after the header. */
#define TB_KINDS(X)                                                   \
  X(TB_NOTHING, 0)                                                    \
  X(TB_CALL, 2)      /* region, site; enter, leave */                 \
  X(TB_PAUSE, 2)     /* from, to: the buffer was written */           \
  X(TB_SEND, 2)      /* peer; comm << 32 | tag, bytes */              \
  X(TB_RECEIVE, 2)   /* as send */                                    \
  X(TB_ISEND, 3)     /* as send, request */                           \
  X(TB_IRECEIVE, 3)  /* a non-blocking receive completes */           \
  X(TB_SENT, 1)      /* request: a non-blocking send completes */     \
  X(TB_RECEIVING, 1) /* request: a non-blocking receive is posted */  \
  X(TB_CANCELLED, 1) /* request */                                    \
  X(TB_COLLECTIVE, 3) /* op, root; comm, sent, received */            \
  X(TB_COLLECTING, 1) /* request: a non-blocking one is posted */     \
  X(TB_COLLECTED, 4) /* op, root; comm, sent, received, request */    \
  X(TB_RMA, 2)       /* op, target; window, bytes */                  \
  X(TB_SYNC, 1)      /* 1 for a fence, target; window */             \
  X(TB_SIZES, 1)     /* of the collective that follows: a vector of rank-R.sizes, from 1 */ \
  X(TB_COMPUTED, 1)  /* ns of processor time between the previous call and the one that follows */ \
  X(TB_WROTE, 2)     /* peer: a connection; the byte at which the call before began, bytes */

enum tb_kind {
#define X(kind, words) kind,
  TB_KINDS(X)
#undef X
      TB_N_KINDS
};

static const uint8_t tb_words[] = {
#define X(kind, words) words,
    TB_KINDS(X)
#undef X
};

struct tb_header {
  uint8_t kind, op;
  uint16_t region;
  uint32_t peer;
};

/* Numbers of OTF2_CollectiveOp. */
enum tb_collective_op {
  TB_BARRIER, TB_BCAST, TB_GATHER, TB_GATHERV, TB_SCATTER, TB_SCATTERV, TB_ALLGATHER,
  TB_ALLGATHERV, TB_ALLTOALL, TB_ALLTOALLV, TB_ALLTOALLW, TB_ALLREDUCE, TB_REDUCE,
  TB_REDUCE_SCATTER, TB_SCAN, TB_EXSCAN, TB_REDUCE_SCATTER_BLOCK,
};

enum tb_rma_op { TB_PUT, TB_GET, TB_ATOMIC };

#endif
