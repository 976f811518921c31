/* Bytes that a rank sends to each partner of MPI_Alltoallv and MPI_Alltoallw, where they differ.
 *
 * Each vector is written once to the file rank-R.sizes, in the order of their numbers, from 1: how
 * many values, the bytes of each (4 or 8), both as 32 bits, and the values. Programs mostly repeat a
 * few vectors, so some are kept to be recognised; one that was forgotten is written again.
 */
#include "recorder.h"

#include <errno.h>
#include <pthread.h>

#define SLOTS 256
#define KEPT_BYTES (8u << 20) /* of vectors of one length, about */
#define BUFFER_BYTES (256u << 10)

struct kept {
  uint64_t hash, n;
  uint64_t *bytes;
  uint32_t number;
};

static struct kept slots[SLOTS];
static uint64_t *values; /* of the call at hand */
static uint64_t n_values;
static uint32_t n_vectors;
static char buffer[BUFFER_BYTES];
static size_t filled;
static int file = -1;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static uint64_t size_of(MPI_Datatype type) { return tb_bytes(1, type); }

/* The bytes of each part into `to`, NULL for their sum only, which is returned. */
static uint64_t measure(const struct tb_parts *parts, uint64_t *to) {
  uint64_t total = 0, size = parts->types ? 0 : size_of(parts->type);
  const int *narrow = parts->wide ? NULL : parts->counts;
  const MPI_Count *wide = parts->wide ? parts->counts : NULL;
  for (uint64_t i = 0; i < parts->n; i++) {
    if (parts->types && (!i || parts->types[i] != parts->types[i - 1]))
      size = size_of(parts->types[i]);
    long long count = narrow ? narrow[i] : (long long)wide[i];
    uint64_t bytes = count > 0 ? (uint64_t)count * size : 0;
    total += bytes;
    if (to) to[i] = bytes;
  }
  return total;
}

uint64_t tb_total(const struct tb_parts *parts) { return parts->counts ? measure(parts, NULL) : 0; }

static void flush(void) {
  if (filled && file >= 0) tb_write(file, buffer, filled);
  filled = 0;
}

void tb_flush_sizes(void) {
  if (tb_threaded) pthread_mutex_lock(&guard);
  flush();
  if (tb_threaded) pthread_mutex_unlock(&guard);
}

static void append(const void *data, size_t bytes) {
  if (filled + bytes > BUFFER_BYTES) flush();
  if (bytes > BUFFER_BYTES) {
    tb_write(file, data, bytes);
    return;
  }
  memcpy(buffer + filled, data, bytes);
  filled += bytes;
}

/* Writes the values as a vector; its number, also where it cannot be written. */
static uint32_t write_vector(uint64_t n, uint64_t largest) {
  uint32_t head[2] = {(uint32_t)n, largest >> 32 ? 8 : 4};
  if (file < 0 && (file = tb_create(".sizes")) < 0) {
    tb_stop(errno);
    return ++n_vectors;
  }
  append(head, sizeof head);
  if (head[1] == 8) {
    append(values, n * sizeof *values);
  } else {
    uint32_t some[1024];
    for (uint64_t i = 0; i < n;) {
      size_t k = 0;
      while (k < 1024 && i < n) some[k++] = (uint32_t)values[i++];
      append(some, k * sizeof *some);
    }
  }
  return ++n_vectors;
}

/* The number of the values, as one of those that are kept or as a new one. */
static uint32_t number(uint64_t n) {
  uint64_t hash = n, largest = 0, fit = KEPT_BYTES / (n * sizeof *values);
  for (uint64_t i = 0; i < n; i++) {
    hash = (hash ^ values[i]) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
    largest |= values[i];
  }
  struct kept *slot = &slots[hash % (fit < 1 ? 1 : fit < SLOTS ? fit : SLOTS)];
  if (slot->bytes && slot->hash == hash && slot->n == n &&
      !memcmp(slot->bytes, values, n * sizeof *values))
    return slot->number;
  uint64_t *room = slot->n == n ? slot->bytes : realloc(slot->bytes, n * sizeof *room);
  if (!room) abort();
  memcpy(room, values, n * sizeof *room);
  *slot = (struct kept){hash, n, room, write_vector(n, largest)};
  return slot->number;
}

/* The number of the vector of bytes, 0 where all are equal; their sum in `total`. */
uint32_t tb_number_sizes(const struct tb_parts *parts, uint64_t *total) {
  uint64_t n = parts->n, differ = 0;
  uint32_t found = 0;
  *total = 0;
  if (!parts->counts || !n) return 0;
  if (tb_threaded) pthread_mutex_lock(&guard);
  if (n > n_values) {
    free(values);
    if (!(values = malloc(n * sizeof *values))) abort();
    n_values = n;
  }
  *total = measure(parts, values);
  for (uint64_t i = 1; i < n; i++) differ |= values[i] ^ values[0];
  if (differ) found = number(n);
  if (tb_threaded) pthread_mutex_unlock(&guard);
  return found;
}
