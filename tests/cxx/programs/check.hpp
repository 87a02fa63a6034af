/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs of this folder share: checks that, if they fail, print where and end the program.
 */
#ifndef TRZ_TEST_CHECK_HPP
#define TRZ_TEST_CHECK_HPP

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>

inline std::atomic<int> checks{0};

inline void check_that(bool holds, const char *what, const char *file, int line)
{
	checks++;
	if (holds)
		return;
	std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	std::_Exit(1);
}

#define CHECK(condition) check_that(static_cast<bool>(condition), #condition, __FILE__, __LINE__)

/* Whether the call throws an exception of the type. */
template <class Exception, class Call> bool throws(Call call)
{
	try {
		call();
	} catch (const Exception &) {
		return true;
	} catch (const std::exception &other) {
		std::fprintf(stderr, "another exception: %s\n", other.what());
	}
	return false;
}

inline int all_checked()
{
	std::printf("%d checks\n", checks.load());
	return 0;
}

#endif
