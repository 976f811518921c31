/* Counters of the adapters of a host, ten times a second, by a thread of one of its ranks.
 *
 * A thread needs no second program on the host and no rights, ends with the job, and shares the
 * cores that the launcher gave the rank; a reading takes about 0.1 ms. A line is written at once:
 * a rank that is killed loses none.
 */
#define _GNU_SOURCE
#include "recorder.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define INTERVAL_MS 100
#define MAX_PORTS 64

static pthread_t sampler;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake;
static int running, ending;
static char host[256], place[4096];

struct port {
  char node[80], name[80], path[300];
  char guid[24], speed[48]; /* of an InfiniBand port, as in sysfs */
  int infiniband;
  long long rate; /* Mbit/s, -1 unknown */
};
static struct port ports[MAX_PORTS];
static int n_ports;

static const char *const ethernet[] = {"tx_bytes", "tx_packets", "tx_dropped", "rx_bytes",
                                       "rx_packets", "rx_dropped"};
static const char *const ethernet_seldom[] = {"rx_errors", "tx_errors"};
static const char *const infiniband[] = {
    "counters/port_xmit_data", "counters/port_xmit_packets", "counters/port_xmit_wait",
    "counters/port_rcv_data", "counters/port_rcv_packets", "counters/port_xmit_discards",
    "hw_counters/np_ecn_marked_roce_packets", "hw_counters/np_cnp_sent",
    "hw_counters/rp_cnp_handled", "hw_counters/out_of_sequence"};
/* Of losses and errors the total matters: they are read every second, and at both ends. */
static const char *const infiniband_seldom[] = {
    "hw_counters/packet_seq_err", "hw_counters/local_ack_timeout_err",
    "hw_counters/rnr_nak_retry_err", "hw_counters/out_of_buffer", "counters/symbol_error",
    "counters/port_rcv_errors", "counters/link_error_recovery", "counters/link_downed"};
#define ETHERNET (int)(sizeof ethernet / sizeof *ethernet)
#define INFINIBAND (int)(sizeof infiniband / sizeof *infiniband)
#define ETHERNET_SELDOM (int)(sizeof ethernet_seldom / sizeof *ethernet_seldom)
#define INFINIBAND_SELDOM (int)(sizeof infiniband_seldom / sizeof *infiniband_seldom)
#define SELDOM 10

static int read_text(const char *folder, const char *name, char *text, size_t bytes) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t got = read(fd, text, bytes - 1);
  close(fd);
  if (got <= 0) return 0;
  text[got] = 0;
  text[strcspn(text, "\r\n")] = 0;
  return 1;
}

static void find_ethernet(void) {
  DIR *folder = opendir("/sys/class/net");
  struct dirent *entry;
  while (folder && (entry = readdir(folder)) && n_ports < MAX_PORTS) {
    char text[64];
    if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "lo")) continue;
    struct port *port = &ports[n_ports];
    snprintf(port->path, sizeof port->path, "/sys/class/net/%.64s", entry->d_name);
    /* Names of interfaces may hold anything but a slash. */
    if (strpbrk(entry->d_name, ",\"\n") || !read_text(port->path, "statistics/tx_bytes", text, 64))
      continue;
    snprintf(port->name, sizeof port->name, "%.64s", entry->d_name);
    port->infiniband = 0;
    port->rate = read_text(port->path, "speed", text, sizeof text) ? atoll(text) : -1;
    tb_find_driver(port->name);
    n_ports++;
  }
  if (folder) closedir(folder);
}

static void find_infiniband(void) {
  DIR *devices = opendir("/sys/class/infiniband");
  struct dirent *device, *number;
  while (devices && (device = readdir(devices))) {
    char path[300];
    if (device->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/sys/class/infiniband/%.64s/ports", device->d_name);
    DIR *inside = opendir(path);
    while (inside && (number = readdir(inside)) && n_ports < MAX_PORTS) {
      if (number->d_name[0] == '.') continue;
      struct port *port = &ports[n_ports++];
      snprintf(port->path, sizeof port->path, "/sys/class/infiniband/%.64s/ports/%.16s",
               device->d_name, number->d_name);
      snprintf(port->name, sizeof port->name, "%.48s/%.16s", device->d_name, number->d_name);
      port->infiniband = 1;
      snprintf(path, sizeof path, "/sys/class/infiniband/%.64s", device->d_name);
      if (!read_text(path, "node_guid", port->guid, sizeof port->guid)) port->guid[0] = 0;
      if (!read_text(port->path, "rate", port->speed, sizeof port->speed)) port->speed[0] = 0;
      port->guid[strcspn(port->guid, ",\"")] = port->speed[strcspn(port->speed, ",\"")] = 0;
    }
    if (inside) closedir(inside);
  }
  if (devices) closedir(devices);
}

static FILE *open_table(const char *kind) {
  char path[4400];
  snprintf(path, sizeof path, "%s/%s-%s-%d.csv", place, kind, host, tb_world_rank());
  return fopen(path, "we");
}

/* The time as 2026-11-22T11:06:10.412345678Z. */
static void stamp(char *text, size_t bytes) {
  struct timespec now;
  struct tm utc;
  char seconds[32];
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(text, bytes, "%s.%09ldZ", seconds, now.tv_nsec);
}

static int read_counter(const struct port *port, const char *name, char *text, size_t bytes) {
  char file[96];
  snprintf(file, sizeof file, port->infiniband ? "%s" : "statistics/%s", name);
  if (read_text(port->path, file, text, bytes) && !text[strspn(text, "0123456789")]) return 1;
  text[0] = 0;
  return 0;
}

static void write_row(FILE *out, const struct port *port, int all) {
  char now[64], text[64];
  int n = port->infiniband ? INFINIBAND : ETHERNET;
  int seldom = port->infiniband ? INFINIBAND_SELDOM : ETHERNET_SELDOM;
  stamp(now, sizeof now);
  fprintf(out, "%s,%s,%s", now, host, port->name);
  for (int i = 0; i < n; i++) {
    read_counter(port, port->infiniband ? infiniband[i] : ethernet[i], text, sizeof text);
    /* What InfiniBand counts as data are words of 4 bytes. */
    if (port->infiniband && (i == 0 || i == 3) && *text) {
      unsigned long long words = strtoull(text, NULL, 10);
      fprintf(out, ",%llu", words > ULLONG_MAX / 4 ? ULLONG_MAX : 4 * words);
    } else {
      fprintf(out, ",%s", text);
    }
  }
  for (int i = 0; i < seldom; i++) {
    text[0] = 0;
    if (all)
      read_counter(port, port->infiniband ? infiniband_seldom[i] : ethernet_seldom[i], text,
                   sizeof text);
    fprintf(out, ",%s", text);
  }
  if (port->infiniband) fprintf(out, ",%s,%s", port->guid, port->speed);
  else fprintf(out, port->rate > 0 ? ",%lld" : ",", port->rate);
  fputc('\n', out);
}

static FILE *open_ethernet(void) {
  FILE *out = open_table("ethernet");
  if (!out) return NULL;
  fputs("time_utc,node,iface", out);
  for (int i = 0; i < ETHERNET; i++) fprintf(out, ",%s", ethernet[i]);
  for (int i = 0; i < ETHERNET_SELDOM; i++) fprintf(out, ",%s", ethernet_seldom[i]);
  fputs(",speed_mbps\n", out);
  return out;
}

static FILE *open_infiniband(void) {
  FILE *out = open_table("infiniband");
  if (!out) return NULL;
  fputs("time_utc,node,iface,tx_bytes,tx_packets,xmit_wait,rx_bytes,rx_packets,tx_discards,"
        "ecn_marked,cnp_sent,cnp_handled,out_of_sequence", out);
  for (int i = 0; i < INFINIBAND_SELDOM; i++)
    fprintf(out, ",%s", strchr(infiniband_seldom[i], '/') + 1);
  fputs(",node_guid,rate\n", out);
  return out;
}

static FILE *open_drivers(void) {
  FILE *out = tb_has_drivers() ? open_table("ethtool") : NULL;
  if (out) fputs("time_utc,node,iface,counter,value\n", out);
  return out;
}

static void read_all(FILE *eth, FILE *ib, FILE *driver, int at_an_end) {
  static unsigned readings;
  char now[64];
  int all = at_an_end || readings++ % SELDOM == 0;
  stamp(now, sizeof now);
  tb_write_drivers(driver, now, host, at_an_end);
  for (int i = 0; i < n_ports; i++) {
    FILE *out = ports[i].infiniband ? ib : eth;
    if (out) write_row(out, &ports[i], all);
  }
  if (eth) fflush(eth);
  if (ib) fflush(ib);
}

static void *sample(void *nothing) {
  int some_ib = 0, some_eth = 0;
  for (int i = 0; i < n_ports; i++) *(ports[i].infiniband ? &some_ib : &some_eth) = 1;
  FILE *eth = some_eth ? open_ethernet() : NULL, *ib = some_ib ? open_infiniband() : NULL;
  FILE *driver = open_drivers();
  int first = 1;
  struct timespec due;
  clock_gettime(CLOCK_MONOTONIC, &due);
  pthread_mutex_lock(&guard);
  for (;;) {
    int last = ending;
    pthread_mutex_unlock(&guard);
    read_all(eth, ib, driver, first || last);
    first = 0;
    pthread_mutex_lock(&guard);
    if (last) break;
    due.tv_nsec += INTERVAL_MS * 1000000L;
    if (due.tv_nsec >= 1000000000L) {
      due.tv_nsec -= 1000000000L;
      due.tv_sec++;
    }
    while (!ending && pthread_cond_timedwait(&wake, &guard, &due) == 0) {}
  }
  pthread_mutex_unlock(&guard);
  if (eth) fclose(eth);
  if (ib) fclose(ib);
  if (driver) fclose(driver);
  return nothing;
}

void tb_sample_counters(const char *folder) {
  pthread_condattr_t attributes;
  sigset_t all, before;
  if (running) return;
  snprintf(place, sizeof place, "%s", folder);
  gethostname(host, sizeof host - 1);
  host[strcspn(host, ",/\"\n")] = 0;
  find_infiniband();
  find_ethernet();
  if (!n_ports) return;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&wake, &attributes);
  /* Signals are the program's. */
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  running = pthread_create(&sampler, NULL, sample, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void tb_stop_counters(void) {
  if (!running) return;
  pthread_mutex_lock(&guard);
  ending = 1;
  pthread_cond_signal(&wake);
  pthread_mutex_unlock(&guard);
  pthread_join(sampler, NULL);
  running = 0;
}
