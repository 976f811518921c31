/* Waiting MPI processes give their core away for a moment instead of spinning: a lab has far more
 * processes than cores, and a spinning one would slow the network itself down. */
#include <time.h>

int sched_yield(void) {
  struct timespec pause = {0, 50000};
  return nanosleep(&pause, 0);
}
