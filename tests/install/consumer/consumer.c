/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest program that uses an installed terrazzo: prints the version, opens a heap or says why not.
 */
#include <stdio.h>
#include <terrazzo.h>

int main(void)
{
	trz_heap *heap = NULL;
	trz_status status = trz_open(NULL, &heap);
	printf("%s %s\n", trz_version(), trz_status_name(status));
	return trz_close(heap) != TRZ_OK;
}
