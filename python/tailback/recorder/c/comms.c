/* Numbers of communicators and windows, and who is in them.
 *
 * A number counts within its rank. A name that is the same on all members ties the numbers together.
 * Each rank finds it by itself, since a message on the communicator would meet those of the program
 * if a member is not recorded: from the name of the communicator it was made of, its members, and
 * how many of the same came before, which the members agree on, as they make communicators of one
 * in the same order. One that was made out of sight (by MPI_Comm_idup, say) is named by its members
 * and how many of these members were met before.
 */
#include "recorder.h"

#define BUCKETS 256

volatile uint64_t tb_comm_epoch;

static struct tb_comm *comms[BUCKETS], *windows[BUCKETS];
static uint32_t n_comms, n_windows;

static struct tb_comm **bucket(struct tb_comm **table, uint64_t key) {
  return &table[(key * 0x9E3779B97F4A7C15ull) >> 56];
}

static struct tb_comm *find(struct tb_comm **table, uint64_t key) {
  struct tb_comm *at = *bucket(table, key);
  while (at && at->key != key) at = at->next;
  return at;
}

static void forget(struct tb_comm **table, uint64_t key) {
  struct tb_comm **at = bucket(table, key);
  while (*at && (*at)->key != key) at = &(*at)->next;
  /* Not freed: another thread may still hold it. */
  if (*at) *at = (*at)->next;
  tb_comm_epoch++;
}

static struct tb_comm *add(struct tb_comm **table, uint64_t key, uint32_t id) {
  struct tb_comm *one = calloc(1, sizeof *one);
  struct tb_comm **at = bucket(table, key);
  if (!one) abort();
  one->key = key;
  one->id = id;
  one->next = *at;
  *at = one;
  return one;
}

/* How often each name was made. */
struct made {
  uint64_t name;
  uint32_t times;
};
static struct made *made;
static size_t made_room, n_made;

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 29;
}

static struct made *find_made(uint64_t name) {
  size_t at = (size_t)(name >> 20) & (made_room - 1);
  while (made[at].times && made[at].name != name) at = (at + 1) & (made_room - 1);
  return &made[at];
}

/* How many of this name came before. */
static uint32_t count_made(uint64_t name) {
  if (2 * n_made >= made_room) {
    struct made *old = made;
    size_t room = made_room;
    made_room = room ? 2 * room : 256;
    if (!(made = calloc(made_room, sizeof *made))) abort();
    for (size_t i = 0; i < room; i++)
      if (old[i].times) *find_made(old[i].name) = old[i];
    free(old);
  }
  struct made *one = find_made(name);
  if (!one->times) n_made++;
  one->name = name;
  return one->times++;
}

/* World ranks of a group, -1 for other processes; to free. */
static int *world_ranks(MPI_Group group, int *size) {
  MPI_Group world;
  int same;
  PMPI_Group_size(group, size);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  PMPI_Group_compare(group, world, &same);
  int *ranks = malloc(sizeof(int) * (size_t)(*size + 1));
  int *theirs = malloc(sizeof(int) * (size_t)(*size + 1));
  if (!ranks || !theirs) abort();
  for (int i = 0; i < *size; i++) ranks[i] = theirs[i] = i;
  /* Translating takes the square of the size in some libraries. */
  if (same != MPI_IDENT) PMPI_Group_translate_ranks(group, *size, ranks, world, theirs);
  for (int i = 0; i < *size; i++)
    if (theirs[i] == MPI_UNDEFINED) theirs[i] = -1;
  free(ranks);
  PMPI_Group_free(&world);
  return theirs;
}

/* Lines "members ID SIDE FIRST n…" with the world ranks of a group. */
static void write_members(uint32_t id, int side, const int *ranks, int size) {
  for (int from = 0; from < size || from == 0; from += 256) {
    char text[3600];
    size_t at = 0;
    for (int i = from; i < size && i < from + 256; i++)
      at += (size_t)snprintf(text + at, sizeof text - at, " %d", ranks[i]);
    text[at] = 0;
    tb_meta("members %u %d %d%s", id, side, from, text);
  }
}

static uint64_t hash_of(const int *ranks, int size) {
  uint64_t hash = (uint64_t)size;
  for (int i = 0; i < size; i++) hash = mix(hash, (uint64_t)(int64_t)ranks[i]);
  return hash;
}

/* The members of a communicator; each side of an intercommunicator is the other's remote one. */
static uint64_t hash_of_all(int *const ranks[2], const int size[2], int inter) {
  uint64_t own = hash_of(ranks[0], size[0]);
  if (!inter) return own;
  uint64_t remote = hash_of(ranks[1], size[1]);
  return own < remote ? mix(own, remote) : mix(remote, own);
}

/* The name of a communicator that was made of one of the name `of`. */
static uint64_t name_of(uint64_t of, uint64_t members) {
  uint64_t name = mix(of, members);
  return mix(name, count_made(name)) >> 1; /* not negative */
}

static struct tb_comm *describe(MPI_Comm comm, const char *kind, uint64_t of) {
  char label[MPI_MAX_OBJECT_NAME] = "";
  int length = 0, *ranks[2] = {NULL, NULL}, size[2] = {0, 0};
  int named = !strcmp(kind, "named");
  MPI_Group group;
  struct tb_comm *one = add(comms, TB_KEY(comm), n_comms++);
  PMPI_Comm_test_inter(comm, &one->inter);
  PMPI_Comm_rank(comm, &one->rank);
  PMPI_Comm_get_name(comm, label, &length);
  PMPI_Comm_group(comm, &group);
  ranks[0] = world_ranks(group, &size[0]);
  PMPI_Group_free(&group);
  if (one->inter) {
    PMPI_Comm_remote_group(comm, &group);
    ranks[1] = world_ranks(group, &size[1]);
    PMPI_Group_free(&group);
  }
  one->size = size[one->inter];
  one->name = hash_of_all(ranks, size, one->inter);
  /* The sides of an intercommunicator are made of different communicators. */
  if (named) one->name = name_of(one->inter ? 0 : of, one->name);
  tb_meta("comm %u %s %lld %d %s", one->id, kind, (long long)(named ? one->name : 0), one->inter,
          label);
  /* Of those that all members name alike, one of them says who they are. */
  if (!named || one->inter || one->rank == 0 || tb_alone)
    for (int side = 0; side <= one->inter; side++)
      write_members(one->id, side, ranks[side], size[side]);
  free(ranks[0]);
  free(ranks[1]);
  return one;
}

struct tb_comm *tb_find_comm(MPI_Comm comm) {
  tb_lock();
  struct tb_comm *one = find(comms, TB_KEY(comm));
  if (!one)
    one = describe(comm, comm == MPI_COMM_WORLD ? "world" : comm == MPI_COMM_SELF ? "self" : "met",
                   0);
  tb_unlock();
  return one;
}

void tb_new_comm(MPI_Comm comm, MPI_Comm of) {
  if (comm == MPI_COMM_NULL || !tb_recording) return;
  uint64_t name = tb_find_comm(of)->name;
  tb_lock();
  forget(comms, TB_KEY(comm));
  describe(comm, "named", name);
  tb_unlock();
}

void tb_forget_comm(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL) return;
  tb_lock();
  forget(comms, TB_KEY(comm));
  tb_unlock();
}

void tb_new_window(MPI_Win window, MPI_Comm comm) {
  struct tb_comm *of = tb_find_comm(comm);
  tb_lock();
  forget(windows, TB_KEY(window));
  struct tb_comm *one = add(windows, TB_KEY(window), n_windows++);
  tb_meta("window %u %u", one->id, of->id);
  tb_unlock();
}

void tb_forget_window(MPI_Win window) {
  tb_lock();
  forget(windows, TB_KEY(window));
  tb_unlock();
}

uint32_t tb_find_window(MPI_Win window) {
  tb_lock();
  struct tb_comm *one = find(windows, TB_KEY(window));
  tb_unlock();
  return one ? one->id : UINT32_MAX;
}
