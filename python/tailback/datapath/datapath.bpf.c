/* Both programs in one object, so that they share their maps. */
#include "egress.h"
#include "ingress.h"

char _license[] SEC("license") = "Dual BSD/GPL";
