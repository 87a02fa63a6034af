/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a c10::Error, for either form of std::string: each file that includes this has the form that it is compiled
 * for.
 */
#ifndef TRZ_PLUG_THROW_HPP
#define TRZ_PLUG_THROW_HPP

#include <string>

#include "plug.h"

namespace {

/* Passed by value to the constructor: its members are c10::SourceLocation's. */
struct source_location {
	const char *function, *file;
	uint32_t line;
};

[[maybe_unused]] void construct_error(void *constructor, void *self, const char *text)
{
	using call = void(void *self, source_location, std::string text);
	reinterpret_cast<call *>(constructor)(self, {"trz_torch_alloc", "terrazzo", 0}, text);
}

} // namespace

/* The same for the form that PyTorch's wheels before 2.7 are compiled for. */
void plug_construct_older(void *constructor, void *self, const char *text);

#endif
