/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorts allocations by what their stacks pass through.
 */
#include "dump_inner.h"

#include <stdlib.h>

#include "dump_sites.h"
#include "error.h"

/* Beside its backward passes a loop may do little else: less than one in BESIDE allocations. One in a function of
 * PyTorch's own allocates nothing outside of it but what one in OUTSIDE is. */
enum { BESIDE = 8, OUTSIDE = 64 };

enum {
	SEEN = 1,
	BACKWARD = 2,              /* part of a backward pass */
	PYTHON = 4,                /* has lines of Python */
	OWN = 8,                   /* passes through a loop of PyTorch's own */
	ASKS = 16,                 /* asks for gradients that it gets back */
	TRAINS = 32                /* sets .grad, or is an optimizer's */
};

struct counts {
	size_t all, backward, python, own, asks, trains;
};

static uint8_t flags_of(const struct dump *d, uint32_t stack)
{
	enum evidence_category category = dump_category(d, stack);
	enum call_gradients how = dump_gradients(d, stack);
	uint8_t flags = SEEN;
	/* Autograd's threads have no lines of Python: where C++'s are not recorded, no stack. */
	bool python = d->stacks[stack].count && dump_has_python(d, stack);
	if (python)
		flags |= PYTHON;
	if (!python || category == CATEGORY_GRADIENTS || how != CALL_NO_GRADIENTS)
		flags |= BACKWARD;
	if (dump_is_in_own_loop(d, stack))
		flags |= OWN;
	if (how == CALL_ASKS_GRADIENTS)
		flags |= ASKS;
	if (how == CALL_SETS_GRADIENTS || category == CATEGORY_OPTIMIZER)
		flags |= TRAINS;
	return flags;
}

static struct counts count(const struct dump *d, size_t first, size_t end, uint8_t *flags)
{
	struct counts c = { 0 };
	for (size_t i = first; i < end; i++) {
		const struct dump_event *e = &d->events[i];
		if (e->action != DUMP_ALLOC)
			continue;
		if (!flags[e->stack])
			flags[e->stack] = flags_of(d, e->stack);
		uint8_t f = flags[e->stack];
		c.all++;
		c.backward += (f & BACKWARD) != 0;
		c.python += (f & PYTHON) != 0;
		c.own += (f & PYTHON) && (f & OWN);
		c.asks += (f & ASKS) != 0;
		c.trains += (f & TRAINS) != 0;
	}
	return c;
}

trz_status dump_inner(const struct dump *d, size_t first, size_t end, struct dump_inner *out)
{
	uint8_t *flags = calloc(d->stack_count, 1);
	*out = (struct dump_inner){ 0 };
	if (!flags)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to look at %zu stacks", d->stack_count);
	struct counts c = count(d, first, end, flags);
	free(flags);
	bool own = c.own > 0 && (c.python - c.own) * OUTSIDE <= c.python;
	bool backward = c.backward > 0 && c.python > 0 && (c.all - c.backward) * BESIDE < c.all;
	out->rounds = own || (backward && c.trains == 0);
	out->unrolled = c.asks > 0 && c.trains == 0;
	return TRZ_OK;
}
