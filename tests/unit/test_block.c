/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting and joining blocks: the list stays whole and in order.
 */
#include "bits.h"
#include "memory/block.h"
#include "testing.h"

struct fixture {
	struct meta meta;
	struct node_pool nodes;
	struct block_list list;
};

static void open_fixture(struct fixture *f)
{
	assert_true(meta_open(&f->meta));
	node_pool_init(&f->nodes, &f->meta, sizeof(struct block));
	assert_true(node_pool_reserve(&f->nodes, 4));
}

static void test_split(void **state)
{
	(void)state;
	struct fixture f = {0};
	open_fixture(&f);
	struct block after = {.address = MIB(3), .size = UNIT, .list = &f.list};
	struct block b = {.address = MIB(1), .size = MIB(2), .next = &after, .state = BLOCK_FREE, .sequence = 7,
	                  .list = &f.list};
	after.prev = &b;
	struct block *rest = block_split(&f.nodes, &b, KIB(3));
	assert_int_equal(b.size, KIB(3));
	assert_int_equal(rest->address, MIB(1) + KIB(3));
	assert_int_equal(block_end(rest), MIB(3));
	assert_int_equal(rest->sequence, 7);
	assert_int_equal(rest->state, BLOCK_FREE);
	assert_ptr_equal(b.next, rest);
	assert_ptr_equal(rest->prev, &b);
	assert_ptr_equal(rest->next, &after);
	assert_ptr_equal(after.prev, rest);
	meta_close(&f.meta);
}

static void test_absorb_undoes_a_split(void **state)
{
	(void)state;
	struct fixture f = {0};
	open_fixture(&f);
	struct block b = {.address = MIB(1), .size = MIB(2), .list = &f.list};
	size_t available = f.nodes.available;
	block_split(&f.nodes, &b, UNIT);
	block_split(&f.nodes, b.next, UNIT);
	block_absorb_next(&f.nodes, &b);
	assert_int_equal(b.size, 2 * UNIT);
	assert_ptr_equal(b.next->prev, &b);
	block_absorb_next(&f.nodes, &b);
	assert_int_equal(b.size, MIB(2));
	assert_null(b.next);
	assert_int_equal(f.nodes.available, available);
	meta_close(&f.meta);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_absorb_undoes_a_split),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
