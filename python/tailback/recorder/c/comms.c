/* Numbers of communicators and windows, and who is in them.
 *
 * A number counts within its rank. A name that is the same on all members, which its first rank
 * hands out when the communicator is made, ties them together. One that was made out of sight (by
 * MPI_Comm_idup, say) is named by its members and how many of these members were met before.
 */
#include "recorder.h"

#define BUCKETS 256

volatile uint64_t tb_comm_epoch;

static struct tb_comm *comms[BUCKETS], *windows[BUCKETS];
static uint32_t n_comms, n_windows, n_named;

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

/* Lines "members ID SIDE FIRST n…" with the world ranks of a group. */
static void write_members(uint32_t id, int side, MPI_Group group) {
  MPI_Group world;
  int size;
  PMPI_Group_size(group, &size);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  int *mine = malloc(sizeof(int) * (size_t)size), *theirs = malloc(sizeof(int) * (size_t)size);
  if (!mine || !theirs) abort();
  for (int i = 0; i < size; i++) mine[i] = i;
  PMPI_Group_translate_ranks(group, size, mine, world, theirs);
  for (int from = 0; from < size || from == 0; from += 256) {
    char text[3600];
    size_t at = 0;
    for (int i = from; i < size && i < from + 256; i++)
      at += (size_t)snprintf(text + at, sizeof text - at, " %d",
                             theirs[i] == MPI_UNDEFINED ? -1 : theirs[i]);
    text[at] = 0;
    tb_meta("members %u %d %d%s", id, side, from, text);
  }
  free(mine);
  free(theirs);
  PMPI_Group_free(&world);
}

static struct tb_comm *describe(MPI_Comm comm, const char *kind, long long name, int members) {
  char label[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  struct tb_comm *one = add(comms, TB_KEY(comm), n_comms++);
  PMPI_Comm_test_inter(comm, &one->inter);
  PMPI_Comm_rank(comm, &one->rank);
  if (one->inter)
    PMPI_Comm_remote_size(comm, &one->size);
  else
    PMPI_Comm_size(comm, &one->size);
  PMPI_Comm_get_name(comm, label, &length);
  tb_meta("comm %u %s %lld %d %s", one->id, kind, name, one->inter, label);
  if (members || one->rank == 0) {
    MPI_Group group;
    PMPI_Comm_group(comm, &group);
    write_members(one->id, 0, group);
    PMPI_Group_free(&group);
    if (one->inter) {
      PMPI_Comm_remote_group(comm, &group);
      write_members(one->id, 1, group);
      PMPI_Group_free(&group);
    }
  }
  return one;
}

struct tb_comm *tb_find_comm(MPI_Comm comm) {
  tb_lock();
  struct tb_comm *one = find(comms, TB_KEY(comm));
  if (!one) {
    if (comm == MPI_COMM_WORLD)
      one = describe(comm, "world", 0, 1);
    else if (comm == MPI_COMM_SELF)
      one = describe(comm, "self", tb_world_rank(), 1);
    else
      one = describe(comm, "met", 0, 1);
  }
  tb_unlock();
  return one;
}

void tb_new_comm(MPI_Comm comm) {
  int inter;
  long long name;
  if (comm == MPI_COMM_NULL || !tb_recording) return;
  PMPI_Comm_test_inter(comm, &inter);
  tb_lock();
  name = (long long)tb_world_rank() << 32 | n_named++;
  forget(comms, TB_KEY(comm));
  tb_unlock();
  if (inter) {
    /* Each side learns the least of the other, and then of the other's other: its own. */
    long long theirs, ours;
    PMPI_Allreduce(&name, &theirs, 1, MPI_LONG_LONG, MPI_MIN, comm);
    PMPI_Allreduce(&theirs, &ours, 1, MPI_LONG_LONG, MPI_MIN, comm);
    name = theirs < ours ? theirs : ours;
  } else {
    PMPI_Bcast(&name, 1, MPI_LONG_LONG, 0, comm);
  }
  tb_lock();
  describe(comm, "named", name, inter);
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
