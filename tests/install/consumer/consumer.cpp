/* SPDX-License-Identifier: Apache-2.0
 *
 * The same as consumer.c, to show that the headers are valid C++.
 */
#include <cstdio>
#include <terrazzo.h>
#include <terrazzo_driver.h>

int main()
{
	trz_heap *heap = nullptr;
	trz_status status = trz_open(nullptr, &heap);
	std::printf("%s %s\n", trz_version(), trz_status_name(status));
	return trz_close(heap) != TRZ_OK;
}
