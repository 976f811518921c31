/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Both programs in one object, so that they share their maps. */
#include "egress.h"
#include "ingress.h"

/* Only programs under the GPL may call functions of the kernel (bpf_cast_to_kern_ctx); these files
 * may be used under either licence. */
char _license[] SEC("license") = "GPL";
