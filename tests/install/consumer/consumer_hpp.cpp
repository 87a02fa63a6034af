/* SPDX-License-Identifier: Apache-2.0
 *
 * The same as consumer.c, with terrazzo.hpp and an allocation.
 */
#include <terrazzo.hpp>

#include <cstdio>

int main()
{
	trz_status status = TRZ_OK;
	try {
		terrazzo::heap heap;
		terrazzo::buffer buffer(heap, 1 << 20);
		if (!heap.query(buffer.data()))
			return 1;
	} catch (const terrazzo::failure &failed) {
		status = failed.status();
	}
	std::printf("%s %s\n", trz_version(), trz_status_name(status));
}
