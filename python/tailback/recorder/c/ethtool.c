/* Statistics of a network driver (ethtool -S) that tell of pauses, discards and ECN marks.
 *
 * Their names and units are the driver's: mlx5 counts pause frames of a priority in rx_prio3_pause
 * and their time in microseconds in rx_prio3_pause_duration, i40e counts port.link_xoff_rx. So each
 * is written under its own name, one row for each that changed. No rights are needed.
 */
#define _GNU_SOURCE
#include "recorder.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_INTERFACES 16
#define MOST 4096
/* Some drivers ask the adapter's firmware: readings take at most this share of the time. */
#define ONE_IN 200

struct driver {
  char interface[IFNAMSIZ];
  struct ethtool_stats *values;
  char (*names)[ETH_GSTRING_LEN];
  uint64_t *last;
  unsigned char *wanted;
  uint32_t n;
};
static struct driver drivers[MAX_INTERFACES];
static int n_drivers, fd = -1;
static uint64_t due;

static int ask(const char *interface, void *command) {
  struct ifreq request = {0};
  memcpy(request.ifr_name, interface, strnlen(interface, sizeof request.ifr_name - 1));
  request.ifr_data = command;
  return ioctl(fd, SIOCETHTOOL, &request) == 0;
}

static int is_wanted(const char *name) {
  static const char *const words[] = {"pause", "xoff", "pfc", "ecn", "cnp", "discard", "out_of_buffer"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcasestr(name, words[i])) return 1;
  return 0;
}

/* How many statistics the driver has, 0 if it cannot tell. */
static uint32_t counted(const char *interface) {
  struct {
    struct ethtool_sset_info info;
    uint32_t n;
  } ask_for = {0};
  ask_for.info.cmd = ETHTOOL_GSSET_INFO;
  ask_for.info.sset_mask = 1u << ETH_SS_STATS;
  if (!ask(interface, &ask_for) || !ask_for.info.sset_mask) return 0;
  return ask_for.n < MOST ? ask_for.n : 0;
}

void tb_find_driver(const char *interface) {
  uint32_t n, some = 0;
  if (fd < 0) fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || n_drivers == MAX_INTERFACES || strlen(interface) >= IFNAMSIZ) return;
  if (!(n = counted(interface))) return;
  struct driver *one = &drivers[n_drivers];
  struct ethtool_gstrings *names = calloc(1, sizeof *names + (size_t)n * ETH_GSTRING_LEN);
  one->values = calloc(1, sizeof *one->values + n * sizeof(uint64_t));
  one->last = calloc(n, sizeof *one->last);
  one->wanted = calloc(n, 1);
  if (!names || !one->values || !one->last || !one->wanted) return;
  names->cmd = ETHTOOL_GSTRINGS;
  names->string_set = ETH_SS_STATS;
  names->len = n;
  if (!ask(interface, names)) return;
  one->names = (void *)names->data;
  for (uint32_t i = 0; i < n; i++) {
    one->names[i][ETH_GSTRING_LEN - 1] = 0;
    /* A comma would shift the columns. */
    one->wanted[i] = is_wanted(one->names[i]) && !strpbrk(one->names[i], ",\"\n");
    some += one->wanted[i];
  }
  if (!some) return;
  memcpy(one->interface, interface, strlen(interface) + 1);
  one->n = n;
  n_drivers++;
}

int tb_has_drivers(void) { return n_drivers; }

/* Rows of what changed since the last reading; of everything with *all*. */
void tb_write_drivers(FILE *out, const char *now, const char *host, int all) {
  uint64_t from = tb_now();
  if (!out || (!all && from < due)) return;
  for (int k = 0; k < n_drivers; k++) {
    struct driver *one = &drivers[k];
    one->values->cmd = ETHTOOL_GSTATS;
    one->values->n_stats = one->n;
    /* A driver that has more of them now would write beyond the end. */
    if (one->n != counted(one->interface) || !ask(one->interface, one->values)) continue;
    for (uint32_t i = 0; i < one->n; i++) {
      uint64_t value = one->values->data[i];
      if (!one->wanted[i] || (!all && value == one->last[i])) continue;
      fprintf(out, "%s,%s,%s,%s,%llu\n", now, host, one->interface, one->names[i],
              (unsigned long long)value);
      one->last[i] = value;
    }
  }
  fflush(out);
  due = from + (tb_now() - from) * ONE_IN;
}
