/* Which ranks are recorded: agreed on by files, without a message.
 *
 * Some ranks of a run may not load the recorder: one program of several is statically linked or
 * drops LD_PRELOAD. A collective call, and a message that a program's wildcard may receive, would
 * then hang or spoil the run. So each rank leaves a file in the folder of its program, rank 0
 * counts them, and a symbolic link, which one rank alone can make, says for all of them whether
 * everyone is there. A rank that has waited for the time limit tries to make it itself, and reads
 * it if another was first: all ranks that share the folder find the same answer.
 */
#define _GNU_SOURCE
#include "recorder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define DECISION "decision"
#define LIMIT_S 10
/* What a shared file system may need to make the files of each further rank. */
#define LIMIT_PER_RANK_MS 2
/* How long a file system may hide from one host what another has made. */
#define VISIBLE_S 120

static char place[3072];
static int named; /* whether the launcher told programs of one command apart */

/* The parent of a process, 0 without; its words separated by zeros, in `words`. */
static long read_process(long process, char *words, size_t *bytes) {
  char path[64], text[4096];
  long parent = 0;
  snprintf(path, sizeof path, "/proc/%ld/cmdline", process);
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  *bytes = fread(words, 1, *bytes, file);
  fclose(file);
  snprintf(path, sizeof path, "/proc/%ld/status", process);
  if (!(file = fopen(path, "re"))) return 0;
  while (fgets(text, sizeof text, file))
    if (sscanf(text, "PPid: %ld", &parent) == 1) break;
  fclose(file);
  return parent;
}

/* Hydra, MPICH's launcher, gives ranks no name, but the process that starts them on a host has the
 * address of the launcher and the number of the program in its arguments. */
static int name_by_hydra(char *name, size_t bytes) {
  long process = getppid();
  for (int above = 0; above < 8 && process > 1; above++) {
    char words[4096];
    size_t length = sizeof words - 1;
    const char *port = NULL, *group = "0", *word;
    long parent = read_process(process, words, &length);
    words[length] = 0;
    for (word = words; word < words + length; word += strlen(word) + 1) {
      const char *next = word + strlen(word) + 1;
      if (next >= words + length) break;
      if (!strcmp(word, "--control-port")) port = next;
      if (!strcmp(word, "--pgid")) group = next;
    }
    if (port) {
      snprintf(name, bytes, "%s.%s", port, group);
      return 1;
    }
    process = parent;
  }
  return 0;
}

/* A name that all ranks of one program have, and of two programs of one command only one has: where
 * the launcher gives it to its ranks. */
static void name_program(char *name, size_t bytes) {
  const char *space = getenv("PMIX_NAMESPACE"), *job = getenv("SLURM_JOB_ID");
  const char *whole = getenv("SLURM_HET_JOB_ID"), *step = getenv("SLURM_STEP_ID");
  named = 1;
  if (space && *space)
    snprintf(name, bytes, "%s", space);
  else if (job && *job && step && *step)
    snprintf(name, bytes, "%s.%s", whole && *whole ? whole : job, step);
  else if (!name_by_hydra(name, bytes))
    snprintf(name, bytes, "%d", named = 0);
  for (char *at = name; *at; at++)
    if (!isalnum((unsigned char)*at) && *at != '.') *at = '_';
}

const char *tb_program_folder(void) {
  char name[256];
  const char *folder = getenv("TAILBACK_RECORD");
  if (!folder || !*folder || strlen(folder) > sizeof place - sizeof name - 16) return NULL;
  name_program(name, sizeof name);
  snprintf(place, sizeof place, "%s/program-%.200s", folder, name);
  mkdir(place, 0777);
  return place;
}

/* "all" or "some"; "" before it is decided. */
static void read_decision(char answer[8]) {
  char path[4096];
  snprintf(path, sizeof path, "%s/" DECISION, place);
  ssize_t length = readlink(path, answer, 7);
  answer[length > 0 ? length : 0] = 0;
}

/* 0, or why this rank could not decide: EEXIST if another has. */
static int decide(const char *answer) {
  char path[4096];
  snprintf(path, sizeof path, "%s/" DECISION, place);
  if (symlink(answer, path)) return errno;
  if (*answer == 's')
    fprintf(stderr, "tailback record: some ranks have not loaded the recorder; the others are "
                    "recorded, and the clocks of hosts are not compared\n");
  return 0;
}

/* Opening a folder makes network file systems ask the server what is new in it. */
static int count_ranks(int all) {
  int found = 0;
  struct dirent *entry;
  DIR *folder = opendir(place);
  if (!folder) return 0;
  while (all && (entry = readdir(folder))) {
    size_t length = strlen(entry->d_name);
    found += length > 5 && !strcmp(entry->d_name + length - 5, ".meta");
  }
  closedir(folder);
  return found;
}

int tb_decided_before(void) {
  char answer[8];
  if (named) return 0;
  read_decision(answer);
  return *answer != 0;
}

static uint64_t limit_ns(int size) {
  const char *given = getenv("TAILBACK_RECORD_WAIT");
  double seconds = given && *given ? atof(given) : LIMIT_S;
  return (uint64_t)(seconds * 1e9) + (uint64_t)size * LIMIT_PER_RANK_MS * 1000000u;
}

int tb_all_recorded(int size) {
  char answer[8];
  uint64_t end = tb_now() + limit_ns(size);
  long pause_us = 200, longest_us = 50000 + 10L * size;
  for (;;) {
    int found = count_ranks(tb_world_rank() == 0), reason = 0;
    uint64_t now = tb_now();
    if (found >= size)
      reason = decide("all");
    else if (now >= end)
      reason = decide("some");
    read_decision(answer);
    if (*answer) return !strcmp(answer, "all");
    /* Nothing can be decided in this folder, or what is decided does not become visible. */
    if ((reason && reason != EEXIST) || now >= end + VISIBLE_S * 1000000000ull) return 0;
    usleep((useconds_t)pause_us);
    if (pause_us < longest_us) pause_us *= 2;
  }
}

int tb_first_of_host(const char *host) {
  char path[4096];
  snprintf(path, sizeof path, "%s/host-%.200s", place, host);
  /* Without a suffix, which files of the recording have. */
  for (char *at = path + strlen(place) + 1; *at; at++)
    if (*at == '/' || *at == '.') *at = '_';
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file >= 0) close(file);
  return file >= 0;
}
