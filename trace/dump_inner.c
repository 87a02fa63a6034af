/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorts allocations by what their stacks pass through.
 */
#include "dump_inner.h"

#include "dump_sites.h"

/* Beside its backward passes a loop may do little else: less than one in BESIDE allocations. One in a function of
 * PyTorch's own allocates nothing outside of it but what one in OUTSIDE is. */
enum { BESIDE = 8, OUTSIDE = 64 };

struct counts {
	size_t all;
	size_t backward;           /* part of a backward pass */
	size_t python;             /* has lines of Python */
	size_t own;                /* these pass through a loop of PyTorch's own */
	size_t asks;               /* asks for gradients that it gets back */
	size_t trains;             /* sets .grad, or is an optimizer's */
};

static void count(struct counts *c, const struct dump_site *site)
{
	c->all++;
	/* Autograd's threads have no lines of Python: where C++'s are not recorded, no stack. */
	c->backward += !site->has_python || site->category == CATEGORY_GRADIENTS || site->gradients != CALL_NO_GRADIENTS;
	c->python += site->has_python;
	c->own += site->has_python && site->in_own_loop;
	c->asks += site->gradients == CALL_ASKS_GRADIENTS;
	c->trains += site->gradients == CALL_SETS_GRADIENTS || site->category == CATEGORY_OPTIMIZER;
}

struct dump_inner dump_inner(const struct dump *d, size_t first, size_t end)
{
	struct counts c = { 0 };
	for (size_t i = first; i < end; i++)
		if (d->events[i].action == DUMP_ALLOC)
			count(&c, dump_site(d, d->events[i].stack));
	bool own = c.own > 0 && (c.python - c.own) * OUTSIDE <= c.python;
	bool backward = c.backward > 0 && c.python > 0 && (c.all - c.backward) * BESIDE < c.all;
	return (struct dump_inner){ .rounds = own || (backward && c.trains == 0), .unrolled = c.asks > 0 && c.trains == 0 };
}
