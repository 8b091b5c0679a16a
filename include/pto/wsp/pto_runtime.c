/* SPDX-License-Identifier: MIT */
/**
 * \file
 * Orchestrations that a compiler has written may include this file instead of the header. The runtime itself
 * is in the library libpto_wsp, which they link with.
 */
#include "pto_runtime.h"
