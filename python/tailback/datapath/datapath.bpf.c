/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Both programs in one object, so that they share their maps. */
#include "egress.h"
#include "ingress.h"

/* The kernel lends its own functions (bpf_cast_to_kern_ctx) to programs under the GPL only; these
 * files may be used under either licence. */
char _license[] SEC("license") = "GPL";
