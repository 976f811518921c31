/* From the event file of one thread to the events of one OTF2 location.
 *
 * Built without MPI and called by python/tailback/recorder/archive.py, which opens the archive and
 * writes the definitions; the OTF2 library is handed over as a table of its functions.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "records.h"

#define UNDEFINED UINT32_MAX

/* Functions of the OTF2 library in the order archive.py looks them up. */
struct tb_otf2 {
  int (*enter)(void *, void *, uint64_t, uint32_t);
  int (*leave)(void *, void *, uint64_t, uint32_t);
  int (*context_enter)(void *, void *, uint64_t, uint32_t, uint32_t);
  int (*context_leave)(void *, void *, uint64_t, uint32_t);
  int (*measurement)(void *, void *, uint64_t, uint8_t);
  int (*send)(void *, void *, uint64_t, uint32_t, uint32_t, uint32_t, uint64_t);
  int (*receive)(void *, void *, uint64_t, uint32_t, uint32_t, uint32_t, uint64_t);
  int (*isend)(void *, void *, uint64_t, uint32_t, uint32_t, uint32_t, uint64_t, uint64_t);
  int (*ireceive)(void *, void *, uint64_t, uint32_t, uint32_t, uint32_t, uint64_t, uint64_t);
  int (*sent)(void *, void *, uint64_t, uint64_t);
  int (*receiving)(void *, void *, uint64_t, uint64_t);
  int (*cancelled)(void *, void *, uint64_t, uint64_t);
  int (*collective_begin)(void *, void *, uint64_t);
  int (*collective_end)(void *, void *, uint64_t, uint8_t, uint32_t, uint32_t, uint64_t, uint64_t);
  int (*collecting)(void *, void *, uint64_t, uint64_t);
  int (*collected)(void *, void *, uint64_t, uint8_t, uint32_t, uint32_t, uint64_t, uint64_t,
                   uint64_t);
  int (*rma_put)(void *, void *, uint64_t, uint32_t, uint32_t, uint64_t, uint64_t);
  int (*rma_get)(void *, void *, uint64_t, uint32_t, uint32_t, uint64_t, uint64_t);
  int (*rma_atomic)(void *, void *, uint64_t, uint32_t, uint32_t, uint8_t, uint64_t, uint64_t,
                    uint64_t);
  int (*rma_begin)(void *, void *, uint64_t);
  int (*rma_end)(void *, void *, uint64_t, uint8_t, uint32_t, uint32_t, uint32_t, uint64_t,
                 uint64_t);
  int (*rma_sync)(void *, void *, uint64_t, uint32_t, uint32_t, uint8_t);
};

/* Numbers of the rank to those of the archive; UNDEFINED: leave its records out. */
struct tb_maps {
  const uint32_t *comms, *windows;
  const uint32_t *contexts, *site_regions; /* by site: the calling context of calls of a region */
  const uint32_t *sizes;                   /* by vector of rank-R.sizes: the string with its text */
  uint32_t n_comms, n_windows, n_sites, n_regions, n_sizes;
  uint32_t unknown_sizes; /* the string of vectors that are missing */
  /* How a string or a number becomes an attribute of the next event. */
  uint32_t sizes_attribute, computed_attribute;
  void *attributes;
  int (*add_string)(void *, uint32_t, uint32_t);
  int (*add_number)(void *, uint32_t, uint64_t);
  const char *ranges; /* file to write of struct range; NULL: none */
};

/* Bytes of a connection that a call wrote. */
struct range {
  uint32_t stream, site, region, reserved;
  uint64_t first, bytes;
};

struct tb_result {
  uint64_t events, calls, dropped, used; /* used: bytes of whole records */
  uint64_t computed;                     /* calls with the processor time before them */
  uint64_t first, last;
  int error; /* of OTF2 */
  int damaged;
  int unwritten; /* no room for ranges */
};

struct state {
  const struct tb_otf2 *otf2;
  void *writer;
  const struct tb_maps *maps;
  struct tb_result *result;
  uint64_t enter, leave, time, matching;
  uint64_t pause_from, pause_to; /* written when its call is closed: a Waitall may be in between */
  uint32_t region, context;
  uint64_t sizes; /* of the collective whose record follows, 0 without */
  uint64_t computed; /* before the call whose record follows … */
  int is_computed;   /* … if that is known */
  uint32_t site;
  FILE *ranges;
  int open;
};

static uint64_t not_before(struct state *s, uint64_t time) {
  if (time < s->time) time = s->time;
  return s->time = time;
}

static int close_call(struct state *s) {
  if (!s->open) return 0;
  s->open = 0;
  s->result->events++;
  uint64_t at = not_before(s, s->leave);
  return s->context != UNDEFINED ? s->otf2->context_leave(s->writer, NULL, at, s->context)
                                 : s->otf2->leave(s->writer, NULL, at, s->region);
}

static int write_pause(struct state *s) {
  if (!s->pause_to) return 0;
  s->result->events += 2;
  int off = s->otf2->measurement(s->writer, NULL, not_before(s, s->pause_from), 2);
  int on = s->otf2->measurement(s->writer, NULL, not_before(s, s->pause_to), 1);
  s->pause_from = s->pause_to = 0;
  return off ? off : on;
}

static int open_call(struct state *s, const struct tb_header *h, const uint64_t *word) {
  const struct tb_maps *maps = s->maps;
  int error = close_call(s);
  if (!error) error = write_pause(s);
  s->enter = word[0];
  s->leave = word[1];
  s->region = h->region;
  s->site = h->peer;
  s->context = UNDEFINED;
  if (h->peer < maps->n_sites && maps->site_regions[h->peer] == h->region)
    s->context = maps->contexts[h->peer];
  s->open = 1;
  s->result->calls++;
  s->result->events++;
  uint64_t at = not_before(s, s->enter);
  void *more = s->is_computed ? maps->attributes : NULL;
  if (!error && more) {
    error = maps->add_number(more, maps->computed_attribute, s->computed);
    s->result->computed++;
  }
  s->is_computed = 0;
  if (error) return error;
  return s->context != UNDEFINED ? s->otf2->context_enter(s->writer, more, at, s->context, 1)
                                 : s->otf2->enter(s->writer, more, at, s->region);
}

static uint32_t mapped(const uint32_t *map, uint32_t n, uint64_t number) {
  return number < n ? map[number] : UNDEFINED;
}

static int message(struct state *s, const struct tb_header *h, const uint64_t *w) {
  uint32_t comm = mapped(s->maps->comms, s->maps->n_comms, w[0] >> 32), tag = (uint32_t)w[0];
  if (comm == UNDEFINED) {
    s->result->dropped++;
    return 0;
  }
  s->result->events++;
  const struct tb_otf2 *o = s->otf2;
  switch (h->kind) {
    case TB_SEND: return o->send(s->writer, NULL, s->time, h->peer, comm, tag, w[1]);
    case TB_ISEND: return o->isend(s->writer, NULL, s->time, h->peer, comm, tag, w[1], w[2]);
    case TB_RECEIVE:
      return o->receive(s->writer, NULL, not_before(s, s->leave), h->peer, comm, tag, w[1]);
    default:
      return o->ireceive(s->writer, NULL, not_before(s, s->leave), h->peer, comm, tag, w[1], w[2]);
  }
}

/* Attributes of the end of a collective: NULL where all its partners get the same. */
static void *attributes(struct state *s, int *error) {
  const struct tb_maps *maps = s->maps;
  if (!s->sizes) return NULL;
  uint32_t text = mapped(maps->sizes, maps->n_sizes, s->sizes - 1);
  if (text == UNDEFINED) text = maps->unknown_sizes;
  s->sizes = 0;
  *error = maps->add_string(maps->attributes, maps->sizes_attribute, text);
  return *error ? NULL : maps->attributes;
}

static int collective(struct state *s, const struct tb_header *h, const uint64_t *w) {
  uint32_t comm = mapped(s->maps->comms, s->maps->n_comms, w[0]);
  int error = 0;
  if (comm == UNDEFINED) {
    s->result->dropped++;
    s->sizes = 0;
    return 0;
  }
  if (h->kind != TB_COLLECTED) {
    s->result->events++;
    error = s->otf2->collective_begin(s->writer, NULL, s->time);
    if (error) return error;
  }
  void *more = attributes(s, &error);
  if (error) return error;
  s->result->events++;
  uint64_t at = not_before(s, s->leave);
  if (h->kind == TB_COLLECTED)
    return s->otf2->collected(s->writer, more, at, h->op, comm, h->peer, w[1], w[2], w[3]);
  return s->otf2->collective_end(s->writer, more, at, h->op, comm, h->peer, w[1], w[2]);
}

static int one_sided(struct state *s, const struct tb_header *h, const uint64_t *w) {
  uint32_t window = mapped(s->maps->windows, s->maps->n_windows, w[0]);
  if (window == UNDEFINED) {
    s->result->dropped++;
    return 0;
  }
  s->result->events++;
  const struct tb_otf2 *o = s->otf2;
  uint64_t id = ++s->matching;
  if (h->op == TB_PUT) return o->rma_put(s->writer, NULL, s->time, window, h->peer, w[1], id);
  if (h->op == TB_GET) return o->rma_get(s->writer, NULL, s->time, window, h->peer, w[1], id);
  return o->rma_atomic(s->writer, NULL, s->time, window, h->peer, 0, w[1], 0, id);
}

/* A fence is a barrier of its window to OTF2: of processes and memory. */
static int synchronised(struct state *s, const struct tb_header *h, const uint64_t *w) {
  enum { PROCESS_AND_MEMORY = 3, MEMORY = 0 };
  uint32_t window = mapped(s->maps->windows, s->maps->n_windows, w[0]);
  const struct tb_otf2 *o = s->otf2;
  if (window == UNDEFINED) {
    s->result->dropped++;
    return 0;
  }
  s->result->events += h->op ? 2 : 1;
  if (!h->op)
    return o->rma_sync(s->writer, NULL, not_before(s, s->leave), window, h->peer, MEMORY);
  int error = o->rma_begin(s->writer, NULL, s->time);
  int end = o->rma_end(s->writer, NULL, not_before(s, s->leave), TB_BARRIER, PROCESS_AND_MEMORY,
                       window, UNDEFINED, 0, 0);
  return error ? error : end;
}

static int wrote(struct state *s, const struct tb_header *h, const uint64_t *w) {
  struct range range = {h->peer, s->site, s->region, 0, w[0], w[1]};
  if (s->ranges && fwrite(&range, sizeof range, 1, s->ranges) != 1) s->result->unwritten = 1;
  return 0;
}

static int record(struct state *s, const struct tb_header *h, const uint64_t *w) {
  switch (h->kind) {
    case TB_CALL: return open_call(s, h, w);
    case TB_PAUSE:
      if (!s->pause_to) s->pause_from = w[0];
      s->pause_to = w[1];
      return 0;
    case TB_SEND:
    case TB_RECEIVE:
    case TB_ISEND:
    case TB_IRECEIVE: return message(s, h, w);
    case TB_COLLECTIVE:
    case TB_COLLECTED: return collective(s, h, w);
    case TB_SIZES: s->sizes = w[0]; return 0;
    case TB_COMPUTED:
      s->computed = w[0];
      s->is_computed = 1;
      return 0;
    case TB_WROTE: return wrote(s, h, w);
    case TB_RMA: return one_sided(s, h, w);
    case TB_SYNC: return synchronised(s, h, w);
    default: s->result->events++;
  }
  switch (h->kind) {
    case TB_SENT: return s->otf2->sent(s->writer, NULL, not_before(s, s->leave), w[0]);
    case TB_CANCELLED: return s->otf2->cancelled(s->writer, NULL, not_before(s, s->leave), w[0]);
    case TB_RECEIVING: return s->otf2->receiving(s->writer, NULL, s->time, w[0]);
    default: return s->otf2->collecting(s->writer, NULL, s->time, w[0]);
  }
}

/* Converts whole records of data; what a killed rank cut short stays unused. */
void tb_convert(const struct tb_otf2 *otf2, void *writer, const struct tb_maps *maps,
                const unsigned char *data, uint64_t bytes, struct tb_result *result) {
  struct state s = {.otf2 = otf2, .writer = writer, .maps = maps, .result = result};
  uint64_t at = 0;
  memset(result, 0, sizeof *result);
  if (maps->ranges && !(s.ranges = fopen(maps->ranges, "wb"))) result->unwritten = 1;
  while (at + 8 <= bytes && !result->error) {
    struct tb_header h;
    uint64_t w[4];
    memcpy(&h, data + at, 8);
    if (h.kind == TB_NOTHING || h.kind >= TB_N_KINDS ||
        (h.kind == TB_CALL && h.region >= maps->n_regions)) {
      result->damaged = 1;
      break;
    }
    uint64_t size = 8 + 8 * (uint64_t)tb_words[h.kind];
    if (at + size > bytes) break;
    memcpy(w, data + at + 8, size - 8);
    at += size;
    if (h.kind == TB_CALL && !result->first) result->first = w[0];
    result->error = record(&s, &h, w);
  }
  result->used = at;
  if (s.ranges && fclose(s.ranges)) result->unwritten = 1;
  int error = close_call(&s);
  if (!result->error) result->error = error;
  result->last = s.time;
}

static char *decimal(char *at, uint64_t value) {
  char digits[20];
  int n = 0;
  do digits[n++] = (char)('0' + value % 10);
  while (value /= 10);
  while (n) *at++ = digits[--n];
  return at;
}

/* Text of a vector of n values of 4 or 8 bytes: numbers, a run of equal ones as TIMES*NUMBER. Needs
 * room for 21 characters a value; returns the number of characters. */
uint64_t tb_sizes_text(const unsigned char *values, uint64_t n, uint32_t width, char *text) {
  char *at = text;
  for (uint64_t i = 0, run; i < n; i += run) {
    uint64_t value = 0;
    memcpy(&value, values + i * width, width);
    for (run = 1; i + run < n && !memcmp(values + (i + run) * width, &value, width);) run++;
    if (i) *at++ = ' ';
    if (run > 1) {
      at = decimal(at, run);
      *at++ = '*';
    }
    at = decimal(at, value);
  }
  return (uint64_t)(at - text);
}
