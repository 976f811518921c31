/* Tells receivers in which MPI call a process is: a word of the map `calls`, which the process maps
 * into its memory. A packet that arrives meanwhile counts for that call (Taffet 2019, section 3.2).
 *
 * The functions of CALLS are wrapped without mpi.h. Each takes up to twelve arguments that fill a
 * register or a slot of the stack; passing on twelve of them passes on all. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile uint32_t unseen, *current = &unseen;

__attribute__((constructor)) static void map_calls(void) {
  const char *path = getenv("TAILBACK_LAB_CALLS"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (path == NULL || rank == NULL) return;
  unsigned mark = (unsigned)atoi(rank) + 1;
  if (mark >= MAX_PROCESSES) return;
  union bpf_attr attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.pathname = (uint64_t)(uintptr_t)path;
  int map = (int)syscall(SYS_bpf, BPF_OBJ_GET, &attributes, sizeof attributes);
  if (map < 0) return;
  /* Values of an array are eight bytes apart. */
  void *words = mmap(NULL, MAX_PROCESSES * 8, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
  if (words != MAP_FAILED) current = (volatile uint32_t *)((char *)words + 8 * (size_t)mark);
  close(map);
}

typedef long (*function)(long, long, long, long, long, long, long, long, long, long, long, long);

#define CALL(number, name)                                                                        \
  long name(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, \
            long l) {                                                                             \
    static function next;                                                                         \
    if (next == NULL) next = (function)dlsym(RTLD_NEXT, #name);                                   \
    uint32_t before = *current;                                                                   \
    if (before == 0) *current = number; /* the outermost call is the program's */                 \
    long result = next(a, b, c, d, e, f, g, h, i, j, k, l);                                        \
    *current = before;                                                                            \
    return result;                                                                                \
  }

CALLS
