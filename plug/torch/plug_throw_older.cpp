/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled with _GLIBCXX_USE_CXX11_ABI=0, for libstdc++'s older std::string.
 */
#include "plug_throw.hpp"

void plug_construct_older(void *constructor, void *self, const char *text)
{
	construct_error(constructor, self, text);
}
