/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of C++ for call sites.
 */
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plug.h"

enum { SLOTS = 64, NAME_BYTES = 192 };

const char *plug_demangle(const char *name, size_t slot)
{
	static thread_local char texts[SLOTS][NAME_BYTES];
	char mangled[NAME_BYTES];
	if (!name || strncmp(name, "_Z", 2) != 0 || slot >= SLOTS)
		return name;
	std::snprintf(mangled, sizeof mangled, "%.*s", static_cast<int>(strcspn(name, "+")), name);
	int status = 0;
	char *plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
	if (!plain)
		return name;
	std::snprintf(texts[slot], NAME_BYTES, "%s", plain);
	std::free(plain);
	return texts[slot];
}
