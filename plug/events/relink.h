/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces functions in the loaded objects that import them: from then on these call the replacement. Calls by
 * addresses that a program got in another way (dlsym), and of functions linked statically, stay as they are.
 */
#ifndef TRZ_RELINK_H
#define TRZ_RELINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void relink_function(void);

struct relink {
	const char *name;
	relink_function *real;         /* what imports of the name lead to; NULL: leave them alone */
	relink_function *replacement;
};

/* What a look through all loaded objects found. It leaves nothing to be done if `replaced`, `unready` and `strange`
 * are 0; until then an import may lead to the real function. */
struct relink_scan {
	uint64_t loaded;     /* relink_loaded() of that moment */
	size_t done;         /* imports that led to the replacement already */
	size_t replaced;     /* imports that do now. The loader may have been about to write there: look again */
	size_t unready;      /* imports of objects that another thread is loading, or that cannot be written: look again */
	size_t strange;      /* imports that lead to a third function */
};

/* Looks through all objects except those that define the functions themselves. One thread at a time. */
struct relink_scan relink_all(const struct relink *list, size_t count);

/* Whether a loaded object imports one of the names, and not `unless`. */
bool relink_imports(const char *const *names, size_t count, const char *unless);

/* How many objects have ever been loaded into the process: while this is unchanged, no import is new. */
uint64_t relink_loaded(void);

#endif
