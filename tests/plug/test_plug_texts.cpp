/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of an out-of-memory error, whose sizes programs read, is the same in any locale.
 */
#include <clocale>
#include <cstdio>
#include <cstring>

#include "comma_locale.h"
#include "terrazzo_torch.h"

static bool tells(size_t size, const char *text)
{
	bool found = strstr(trz_torch_oom_text(0, size), text) != nullptr;
	if (!found)
		fprintf(stderr, "\"%s\" does not have \"%s\"\n", trz_torch_oom_text(0, size), text);
	return found;
}

int main()
{
	trz_torch_free(trz_torch_alloc(1 << 20, 0, nullptr), 1 << 20, 0, nullptr);
	if (!comma_locale_begin())
		fprintf(stderr, "no locale with a decimal comma here\n");
	bool good = tells(512, "Tried to allocate 512 bytes. GPU 0 has a total capacity of ") &&
	            tells(1536, "Tried to allocate 1.50 KiB. ") && tells(5 << 18, "Tried to allocate 1.25 MiB. ") &&
	            tells(size_t(7) << 28, "Tried to allocate 1.75 GiB. ");
	return good ? 0 : 1;
}
