/* Start and end of a recording, its threads and their buffers, its text file, its call sites. */
#define _GNU_SOURCE
#include "recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <unistd.h>

#define BUFFER_BYTES (1u << 20)

int tb_recording;
int tb_threaded;
int tb_alone;
int tb_shared;
__thread struct tb_thread *tb_self __attribute__((tls_model("initial-exec")));
struct tb_site tb_sites[TB_SITES];

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static struct tb_thread *threads;
static uint32_t n_threads, n_sites;
static int meta = -1, world_rank = -1;
static off_t meta_bytes;
static volatile int stopped;
static pid_t owner;
static const char *folder;

void tb_lock(void) {
  if (tb_threaded) pthread_mutex_lock(&guard);
}

void tb_unlock(void) {
  if (tb_threaded) pthread_mutex_unlock(&guard);
}

int tb_world_rank(void) { return world_rank; }

static int write_all(int fd, const void *data, size_t bytes) {
  const char *at = data;
  while (bytes) {
    ssize_t done = write(fd, at, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return 0;
    at += done;
    bytes -= (size_t)done;
  }
  return 1;
}

void tb_meta(const char *format, ...) {
  char text[4096];
  va_list rest;
  if (meta < 0) return;
  va_start(rest, format);
  int length = vsnprintf(text, sizeof text - 1, format, rest);
  va_end(rest);
  if (length < 0) return;
  if ((size_t)length > sizeof text - 2) length = (int)sizeof text - 2;
  text[length] = '\n';
  pthread_mutex_lock(&writing);
  /* Whole lines only, on a full disk, too. */
  if (write_all(meta, text, (size_t)length + 1))
    meta_bytes += length + 1;
  else if (ftruncate(meta, meta_bytes))
    meta = -1;
  pthread_mutex_unlock(&writing);
}

int tb_create(const char *suffix) {
  char name[4096];
  snprintf(name, sizeof name, "%s/rank-%06d%s", folder, world_rank, suffix);
  return open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

/* The rank still counts collectives and communicators as the others do: these rely on it. */
void tb_stop(int reason) {
  if (stopped) return;
  stopped = 1;
  fprintf(stderr, "tailback record: rank %d stopped recording: %s\n", world_rank,
          strerror(reason));
  tb_meta("full %s", strerror(reason));
}

int tb_write(int fd, const void *data, size_t bytes) {
  if (stopped || fd < 0) return 0;
  off_t before = lseek(fd, 0, SEEK_CUR);
  if (write_all(fd, data, bytes)) return 1;
  int reason = errno;
  /* What of it was written gives room for the line that says so. */
  if (before < 0 || ftruncate(fd, before)) reason = errno;
  tb_stop(reason);
  return 0;
}

/* Writes the buffer between calls; the time that takes is recorded as a pause. */
void tb_flush(struct tb_thread *thread) {
  uint64_t from = tb_now();
  size_t bytes = (size_t)(thread->at - thread->begin);
  thread->at = thread->begin;
  /* A child that fork() made has our buffer, and none of it is its own. */
  if (getpid() != owner) {
    tb_recording = 0;
    return;
  }
  /* First what the records refer to. */
  tb_flush_sizes();
  if (!tb_write(thread->fd, thread->begin, bytes)) return;
  uint64_t *word = tb_put(thread, TB_PAUSE, 0, 0, 0);
  word[0] = from;
  word[1] = tb_now();
}

struct tb_thread *tb_new_thread(void) {
  char suffix[32];
  struct tb_thread *thread = calloc(1, sizeof *thread);
  if (!thread) abort();
  thread->begin = malloc(BUFFER_BYTES);
  pthread_mutex_lock(&writing);
  thread->number = n_threads++;
  pthread_mutex_unlock(&writing);
  snprintf(suffix, sizeof suffix, "-%u.events", thread->number);
  thread->fd = tb_create(suffix);
  if (thread->fd < 0) tb_stop(errno);
  if (!thread->begin) abort();
  thread->at = thread->begin;
  thread->end = thread->begin + BUFFER_BYTES;
  pthread_mutex_lock(&writing);
  thread->next = threads;
  threads = thread;
  pthread_mutex_unlock(&writing);
  return tb_self = thread;
}

uint32_t tb_new_site(void *address, unsigned region) {
  size_t at = (size_t)(((uintptr_t)address * 0x9E3779B97F4A7C15ull) >> 51);
  Dl_info info;
  uint32_t id;
  pthread_mutex_lock(&guard);
  for (size_t tried = 0;; tried++, at = (at + 1) % TB_SITES) {
    if (tb_sites[at].address == address) {
      id = tb_sites[at].id;
      pthread_mutex_unlock(&guard);
      return id;
    }
    if (!tb_sites[at].address) break;
    if (tried == 64) { /* full: the call stays without its place */
      pthread_mutex_unlock(&guard);
      return 0;
    }
  }
  id = ++n_sites;
  tb_sites[at].id = id;
  __atomic_store_n(&tb_sites[at].address, address, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&guard);
  if (dladdr(address, &info) && info.dli_fname)
    tb_meta("site %u %u %p %p %s %s", id, region, address, info.dli_fbase,
            info.dli_sname ? info.dli_sname : "-", info.dli_fname);
  else
    tb_meta("site %u %u %p 0x0 - -", id, region, address);
  return id;
}

static void write_cores(char *text, size_t bytes) {
  cpu_set_t cores;
  size_t at = 0;
  text[0] = 0;
  if (sched_getaffinity(0, sizeof cores, &cores)) return;
  for (int core = 0; core < CPU_SETSIZE && at + 16 < bytes; core++) {
    if (!CPU_ISSET(core, &cores)) continue;
    int last = core;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &cores)) last++;
    at += (size_t)snprintf(text + at, bytes - at, last > core ? "%s%d-%d" : "%s%d", at ? "," : "",
                           core, last);
    core = last;
  }
}

/* Whether this host has more ranks than its ranks may use cores, all together. */
void tb_compare_cores(MPI_Comm host) {
  cpu_set_t own, all;
  int ranks;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof own, &own)) CPU_ZERO(&own);
  PMPI_Comm_size(host, &ranks);
  PMPI_Allreduce(&own, &all, sizeof own, MPI_UNSIGNED_CHAR, MPI_BOR, host);
  tb_shared = CPU_COUNT(&all) && ranks > CPU_COUNT(&all);
}

/* Cores of this rank, each of which may run several hardware threads; 0 if the system does not tell. */
static int count_cores(void) {
  static char seen[CPU_SETSIZE];
  cpu_set_t cpus;
  int cores = 0;
  if (sched_getaffinity(0, sizeof cpus, &cpus)) return 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    char path[96];
    int first = cpu;
    if (!CPU_ISSET(cpu, &cpus)) continue;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    if (file) {
      if (fscanf(file, "%d", &first) != 1 || first < 0 || first >= CPU_SETSIZE) first = cpu;
      fclose(file);
    }
    if (!seen[first]) seen[first] = 1, cores++;
  }
  return cores;
}

/* Opens the text file of this rank; whether this rank is recorded. */
static int open_meta(void) {
  char name[4096];
  int other = tb_decided_before(), reason = EEXIST;
  snprintf(name, sizeof name, "%s/rank-%06d.meta", folder, world_rank);
  if (!other) {
    meta = open(name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    reason = errno;
  }
  if (meta >= 0) return 1;
  if (reason != EEXIST)
    fprintf(stderr, "tailback record: rank %d is not recorded: %s: %s\n", world_rank, name,
            strerror(reason));
  else if (world_rank == 0)
    fprintf(stderr, "tailback record: not recorded: another MPI program of this command was "
                    "recorded before it\n");
  return 0;
}

static void describe_rank(int size, const char *host) {
  char cores[2048], version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length, provided;
  struct timespec real;
  const char *job = getenv("SLURM_JOB_ID"), *openmp = getenv("OMP_NUM_THREADS");
  write_cores(cores, sizeof cores);
  PMPI_Query_thread(&provided);
  PMPI_Get_library_version(version, &length);
  version[strcspn(version, "\n")] = 0;
  tb_threaded = provided == MPI_THREAD_MULTIPLE;
  uint64_t before = tb_now();
  clock_gettime(CLOCK_REALTIME, &real);
  uint64_t after = tb_now();
  tb_meta("tailback-recording 1");
  tb_meta("rank %d %d", world_rank, size);
  tb_meta("host %s", host);
  tb_meta("cores %s", cores);
  tb_meta("physical_cores %d", count_cores());
  if (openmp && *openmp && !openmp[strspn(openmp, "0123456789")] && strlen(openmp) < 6)
    tb_meta("openmp_threads %s", openmp);
  if (job && *job && !job[strspn(job, "0123456789")]) tb_meta("slurm_job %s", job);
  tb_meta("threads %d", provided);
  tb_meta("mpi_library %s", version);
  tb_meta("utc %llu %llu", (unsigned long long)(before + (after - before) / 2),
          (unsigned long long)real.tv_sec * 1000000000ull + (unsigned long long)real.tv_nsec);
}

/* Handles of another family have other sizes: the program would crash in its next call, so it ends
 * with a line that says why. */
static void check_library(void) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length;
  PMPI_Get_library_version(version, &length);
  version[strcspn(version, "\n,")] = 0;
#ifdef OPEN_MPI
  const char *own = "Open MPI";
  int fits = !strstr(version, "MPICH") && !strstr(version, "Intel");
#else
  const char *own = "MPICH";
  int fits = !strstr(version, "Open MPI") && !strstr(version, "Spectrum");
#endif
  if (fits) return;
  fprintf(stderr, "tailback record: the program uses %s, the recorder was compiled for %s: name the "
                  "compiler of the program with --mpicc\n", version, own);
  _exit(125);
}

/* After MPI_Init: opens the files of this rank, and records the call. */
void tb_start(uint64_t enter, uint64_t leave, uint16_t region, void *site) {
  char host[256] = "";
  int size;
  if (tb_recording || !getenv("TAILBACK_RECORD")) return;
  check_library();
  if (!(folder = tb_program_folder())) return;
  PMPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!open_meta()) return;
  owner = getpid();
  gethostname(host, sizeof host - 1);
  describe_rank(size, host);
  tb_alone = !tb_all_recorded(size);
  if (!tb_alone) tb_start_clocks();
  struct tb_thread *thread = tb_new_thread();
  if (tb_alone ? tb_first_of_host(host) : tb_leads_host()) tb_sample_counters(folder);
  tb_call(thread, region, site, enter, leave);
  tb_exit(thread);
  tb_recording = 1;
}

static void flush_all(void) {
  if (getpid() == owner) tb_flush_sizes();
  pthread_mutex_lock(&writing);
  struct tb_thread *first = threads;
  pthread_mutex_unlock(&writing);
  for (struct tb_thread *thread = first; thread; thread = thread->next)
    if (thread->at > thread->begin && getpid() == owner) {
      tb_write(thread->fd, thread->begin, (size_t)(thread->at - thread->begin));
      thread->at = thread->begin;
      /* Network file systems tell only now that there was no room. */
      if (close(thread->fd)) tb_stop(errno);
      thread->fd = -1;
    }
}

/* Before PMPI_Finalize, which is the last call a trace has. */
void tb_finish(uint64_t enter, uint16_t region, void *site) {
  if (!tb_recording) return;
  tb_recording = 0;
  struct tb_thread *thread = tb_self ? tb_self : tb_new_thread();
  tb_end_computation(thread);
  tb_end_clocks();
  tb_stop_counters();
  tb_call(thread, region, site, enter, tb_now());
  tb_check_streams();
  flush_all();
  tb_meta("end %llu", (unsigned long long)tb_now());
}

/* A program that aborts, or ends without MPI_Finalize, loses nothing either. */
__attribute__((destructor)) void tb_give_up(void) {
  if (!tb_recording || getpid() != owner) return;
  tb_recording = 0;
  tb_stop_counters();
  tb_check_streams();
  flush_all();
  tb_meta("exit %llu", (unsigned long long)tb_now());
}
