/* SPDX-License-Identifier: Apache-2.0
 *
 * consumer_cuda.c, as C++.
 */
#include "consumer_cuda.c"
