/* SPDX-License-Identifier: Apache-2.0
 *
 * The unpickling machine: a stack, a memo and the opcodes that make plain data. It refuses opcodes that name or
 * call code. Nothing recurses, every index is checked, and memory grows by at most a constant for each byte of
 * input.
 */
#include "trace_pickle.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "error.h"

struct vm {
	struct trace_input *in;
	uint64_t offset;             /* of the opcode that is being executed */
	const struct opcode *op;
	struct plain_words stack;
	struct plain_words marks;   /* heights of the stack, ascending; values below the last are out of reach */
	struct plain_words memo;    /* PLAIN_UNSET: no such entry */
	struct plain *out;
	bool stopped;
};

struct opcode {
	const char *name;
	size_t operand;  /* bytes that always follow */
	trz_status (*run)(struct vm *vm, const uint8_t *operand);
};

static trz_status bad(const struct vm *vm, const char *what)
{
	trz_fail(TRZ_ERROR_BAD_INPUT, "%s: byte %llu: opcode %s: %s", vm->in->name,
	         (unsigned long long)vm->offset, vm->op->name, what);
	return TRZ_ERROR_BAD_INPUT;
}

static trz_status words_push(const struct vm *vm, struct plain_words *w, uint64_t word)
{
	trz_status status = plain_words_reserve(w, 1, vm->in->name);
	if (status == TRZ_OK)
		w->items[w->count++] = word;
	return status;
}

/* -- stack -------------------------------------------------------------------------------------------- */

static trz_status push(struct vm *vm, plain_value value)
{
	return words_push(vm, &vm->stack, value);
}

/* Values above the last mark. */
static size_t within_reach(const struct vm *vm)
{
	size_t floor = vm->marks.count ? vm->marks.items[vm->marks.count - 1] : 0;
	return vm->stack.count - floor;
}

static trz_status pop_many(struct vm *vm, size_t count, plain_value **values)
{
	if (within_reach(vm) < count)
		return bad(vm, "the stack holds too few values");
	vm->stack.count -= count;
	*values = vm->stack.items + vm->stack.count;
	return TRZ_OK;
}

/* Takes the last mark and the values above it. */
static trz_status pop_marked(struct vm *vm, plain_value **values, size_t *count)
{
	if (vm->marks.count == 0)
		return bad(vm, "there is no mark on the stack");
	*count = within_reach(vm);
	vm->marks.count--;
	return pop_many(vm, *count, values);
}

/* The container on top of the stack, which popped values go into. */
static trz_status top(struct vm *vm, enum plain_tag tag, const char *what, plain_value *value)
{
	if (within_reach(vm) == 0)
		return bad(vm, "the stack holds too few values");
	*value = vm->stack.items[vm->stack.count - 1];
	return plain_tag(*value) == tag ? TRZ_OK : bad(vm, what);
}

/* -- containers --------------------------------------------------------------------------------------- */

static trz_status extend(struct vm *vm, plain_value list, const plain_value *values, size_t count)
{
	return plain_extend(vm->out, list, values, count, vm->in->name);
}

static trz_status dict_update(struct vm *vm, plain_value dict, const plain_value *pairs, size_t count)
{
	if (count % 2 != 0)
		return bad(vm, "a key has no value");
	return plain_update(vm->out, dict, pairs, count, vm->in->name);
}

/* -- opcodes: scalars --------------------------------------------------------------------------------- */

static trz_status run_other(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return push(vm, plain_make(PLAIN_OTHER, 0));
}

static trz_status run_binint(struct vm *vm, const uint8_t *operand)
{
	return push(vm, plain_make(PLAIN_INT, (int32_t)load_le(operand, 4)));
}

static trz_status run_binint1(struct vm *vm, const uint8_t *operand)
{
	return push(vm, plain_make(PLAIN_INT, operand[0]));
}

static trz_status run_binint2(struct vm *vm, const uint8_t *operand)
{
	return push(vm, plain_make(PLAIN_INT, (int64_t)load_le(operand, 2)));
}

static trz_status run_true(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return push(vm, plain_make(PLAIN_BOOL, 1));
}

static trz_status run_false(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return push(vm, plain_make(PLAIN_BOOL, 0));
}

/* Two's complement of operand[0] bytes. */
static trz_status run_long1(struct vm *vm, const uint8_t *operand)
{
	size_t size = operand[0];
	trz_status status = input_need(vm->in, size);
	if (status != TRZ_OK)
		return status;
	plain_value value = plain_make(PLAIN_OTHER, 0);
	if (size <= 8) {
		unsigned unused_bits = 64 - 8 * (unsigned)size;
		uint64_t bits = size == 0 ? 0 : load_le(vm->in->at, size) << unused_bits;
		int64_t x = size == 0 ? 0 : (int64_t)bits >> unused_bits;
		value = plain_make_int(x);
	}
	vm->in->at += size;
	return push(vm, value);
}

static trz_status skip_other(struct vm *vm, uint64_t size)
{
	trz_status status = input_skip(vm->in, size);
	return status == TRZ_OK ? run_other(vm, NULL) : status;
}

static trz_status run_long4(struct vm *vm, const uint8_t *operand)
{
	if (operand[3] & 0x80)
		return bad(vm, "the length is negative");
	return skip_other(vm, load_le(operand, 4));
}

static trz_status run_bytes1(struct vm *vm, const uint8_t *operand)
{
	return skip_other(vm, operand[0]);
}

static trz_status run_bytes4(struct vm *vm, const uint8_t *operand)
{
	return skip_other(vm, load_le(operand, 4));
}

static trz_status run_bytes8(struct vm *vm, const uint8_t *operand)
{
	return skip_other(vm, load_le(operand, 8));
}

/* Long texts are cut to PLAIN_TEXT_MAX. */
static trz_status push_string(struct vm *vm, uint64_t size)
{
	size_t head = min_u64(size, PLAIN_TEXT_MAX);
	plain_value text;
	trz_status status = input_need(vm->in, head);
	if (status == TRZ_OK)
		status = plain_add_text(vm->out, vm->in->at, head, vm->in->name, &text);
	if (status == TRZ_OK)
		status = input_skip(vm->in, size);
	return status == TRZ_OK ? push(vm, text) : status;
}

static trz_status run_unicode1(struct vm *vm, const uint8_t *operand)
{
	return push_string(vm, operand[0]);
}

static trz_status run_unicode4(struct vm *vm, const uint8_t *operand)
{
	return push_string(vm, load_le(operand, 4));
}

static trz_status run_unicode8(struct vm *vm, const uint8_t *operand)
{
	return push_string(vm, load_le(operand, 8));
}

/* -- opcodes: containers ------------------------------------------------------------------------------ */

static trz_status push_container(struct vm *vm, enum plain_tag tag)
{
	plain_value container;
	trz_status status = plain_new(vm->out, tag, vm->in->name, &container);
	return status == TRZ_OK ? push(vm, container) : status;
}

static trz_status run_empty_list(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return push_container(vm, PLAIN_LIST);
}

static trz_status run_empty_tuple(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return push_container(vm, PLAIN_TUPLE);
}

static trz_status run_empty_dict(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return push_container(vm, PLAIN_DICT);
}

static trz_status run_empty_set(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return push(vm, plain_make(PLAIN_SET, 0));
}

/* `values` have just been popped: the new sequence takes their place on the stack after copying them. */
static trz_status push_sequence(struct vm *vm, enum plain_tag tag, const plain_value *values, size_t count)
{
	plain_value sequence;
	trz_status status = plain_new(vm->out, tag, vm->in->name, &sequence);
	if (status == TRZ_OK)
		status = extend(vm, sequence, values, count);
	return status == TRZ_OK ? push(vm, sequence) : status;
}

static bool is_pair_item(plain_value value)
{
	return plain_tag(value) == PLAIN_INT && plain_int(value) >= 0 && plain_int(value) < 1 << 30;
}

static trz_status push_tuple(struct vm *vm, size_t count)
{
	plain_value *values;
	trz_status status = pop_many(vm, count, &values);
	if (status != TRZ_OK)
		return status;
	if (count == 2 && is_pair_item(values[0]) && is_pair_item(values[1]))
		return push(vm, plain_make(PLAIN_PAIR, plain_int(values[0]) << 30 | plain_int(values[1])));
	return push_sequence(vm, PLAIN_TUPLE, values, count);
}

static trz_status run_tuple1(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return push_tuple(vm, 1);
}

static trz_status run_tuple2(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return push_tuple(vm, 2);
}

static trz_status run_tuple3(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return push_tuple(vm, 3);
}

static trz_status push_marked(struct vm *vm, enum plain_tag tag)
{
	plain_value *values;
	size_t count;
	trz_status status = pop_marked(vm, &values, &count);
	return status == TRZ_OK ? push_sequence(vm, tag, values, count) : status;
}

static trz_status run_tuple(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return push_marked(vm, PLAIN_TUPLE);
}

static trz_status run_list(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return push_marked(vm, PLAIN_LIST);
}

static trz_status run_dict(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	plain_value *pairs, dict;
	size_t count;
	trz_status status = pop_marked(vm, &pairs, &count);
	if (status == TRZ_OK)
		status = plain_new(vm->out, PLAIN_DICT, vm->in->name, &dict);
	if (status == TRZ_OK)
		status = dict_update(vm, dict, pairs, count);
	return status == TRZ_OK ? push(vm, dict) : status;
}

static trz_status run_frozenset(struct vm *vm, const uint8_t *operand)
{
	plain_value *values;
	size_t count;
	trz_status status = pop_marked(vm, &values, &count);
	return status == TRZ_OK ? run_empty_set(vm, operand) : status;
}

static trz_status run_append(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	plain_value *values, list;
	trz_status status = pop_many(vm, 1, &values);
	if (status == TRZ_OK)
		status = top(vm, PLAIN_LIST, "an append needs a list on the stack", &list);
	return status == TRZ_OK ? extend(vm, list, values, 1) : status;
}

static trz_status run_appends(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	plain_value *values, list;
	size_t count;
	trz_status status = pop_marked(vm, &values, &count);
	if (status == TRZ_OK)
		status = top(vm, PLAIN_LIST, "an append needs a list on the stack", &list);
	return status == TRZ_OK ? extend(vm, list, values, count) : status;
}

static trz_status run_setitem(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	plain_value *pair, dict;
	trz_status status = pop_many(vm, 2, &pair);
	if (status == TRZ_OK)
		status = top(vm, PLAIN_DICT, "a set item needs a dict on the stack", &dict);
	return status == TRZ_OK ? dict_update(vm, dict, pair, 2) : status;
}

static trz_status run_setitems(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	plain_value *pairs, dict;
	size_t count;
	trz_status status = pop_marked(vm, &pairs, &count);
	if (status == TRZ_OK)
		status = top(vm, PLAIN_DICT, "a set item needs a dict on the stack", &dict);
	return status == TRZ_OK ? dict_update(vm, dict, pairs, count) : status;
}

static trz_status run_additems(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	plain_value *values, set;
	size_t count;
	trz_status status = pop_marked(vm, &values, &count);
	return status == TRZ_OK ? top(vm, PLAIN_SET, "an add needs a set on the stack", &set) : status;
}

/* -- opcodes: stack and memo -------------------------------------------------------------------------- */

static trz_status run_mark(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return words_push(vm, &vm->marks, vm->stack.count);
}

static trz_status run_pop_mark(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	plain_value *values;
	size_t count;
	return pop_marked(vm, &values, &count);
}

/* Pops the top: a value, or a mark. */
static trz_status run_pop(struct vm *vm, const uint8_t *operand)
{
	plain_value *value;
	if (within_reach(vm) == 0 && vm->marks.count > 0)
		return run_pop_mark(vm, operand);
	return pop_many(vm, 1, &value);
}

static trz_status run_dup(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	if (within_reach(vm) == 0)
		return bad(vm, "the stack holds too few values");
	return push(vm, vm->stack.items[vm->stack.count - 1]);
}

/* Writers number the memo from 0 up and spend at least a byte on each entry: a larger index is an attack on memory. */
static trz_status memo_put(struct vm *vm, uint64_t index)
{
	if (within_reach(vm) == 0)
		return bad(vm, "the stack holds too few values");
	if (index > vm->offset)
		return bad(vm, "the memo index is larger than any writer's");
	if (index >= vm->memo.count) {
		size_t more = index + 1 - vm->memo.count;
		trz_status status = plain_words_reserve(&vm->memo, more, vm->in->name);
		if (status != TRZ_OK)
			return status;
		memset(vm->memo.items + vm->memo.count, 0, more * sizeof(uint64_t));
		vm->memo.count += more;
	}
	vm->memo.items[index] = vm->stack.items[vm->stack.count - 1];
	return TRZ_OK;
}

static trz_status memo_get(struct vm *vm, uint64_t index)
{
	if (index >= vm->memo.count || vm->memo.items[index] == PLAIN_UNSET)
		return bad(vm, "the memo has no such entry");
	return push(vm, vm->memo.items[index]);
}

static trz_status run_memoize(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return memo_put(vm, vm->memo.count);
}

static trz_status run_binput(struct vm *vm, const uint8_t *operand)
{
	return memo_put(vm, operand[0]);
}

static trz_status run_long_binput(struct vm *vm, const uint8_t *operand)
{
	return memo_put(vm, load_le(operand, 4));
}

static trz_status run_binget(struct vm *vm, const uint8_t *operand)
{
	return memo_get(vm, operand[0]);
}

static trz_status run_long_binget(struct vm *vm, const uint8_t *operand)
{
	return memo_get(vm, load_le(operand, 4));
}

/* -- opcodes: frame and refusals ---------------------------------------------------------------------- */

static trz_status run_proto(struct vm *vm, const uint8_t *operand)
{
	if (operand[0] < 2 || operand[0] > 5)
		return bad(vm, "only the protocols 2 to 5 are read");
	return TRZ_OK;
}

/* A frame only says how far to read ahead. */
static trz_status run_frame(struct vm *vm, const uint8_t *operand)
{
	(void)vm;
	(void)operand;
	return TRZ_OK;
}

static trz_status run_stop(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	vm->stopped = true;
	return within_reach(vm) > 0 ? TRZ_OK : bad(vm, "the stack holds too few values");
}

static trz_status run_code(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return bad(vm, "the pickle calls code: refused; a memory snapshot is plain data");
}

static trz_status run_text(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return bad(vm, "is of protocol 0 or 1; write the pickle with protocol 2 to 5");
}

static trz_status run_buffer(struct vm *vm, const uint8_t *operand)
{
	(void)operand;
	return bad(vm, "refers to data outside the pickle: refused");
}

static const struct opcode opcodes[256] = {
	['('] = { "MARK", 0, run_mark },
	['.'] = { "STOP", 0, run_stop },
	['0'] = { "POP", 0, run_pop },
	['1'] = { "POP_MARK", 0, run_pop_mark },
	['2'] = { "DUP", 0, run_dup },
	['B'] = { "BINBYTES", 4, run_bytes4 },
	['C'] = { "SHORT_BINBYTES", 1, run_bytes1 },
	['F'] = { "FLOAT", 0, run_text },
	['G'] = { "BINFLOAT", 8, run_other },
	['I'] = { "INT", 0, run_text },
	['J'] = { "BININT", 4, run_binint },
	['K'] = { "BININT1", 1, run_binint1 },
	['L'] = { "LONG", 0, run_text },
	['M'] = { "BININT2", 2, run_binint2 },
	['N'] = { "NONE", 0, run_other },
	['P'] = { "PERSID", 0, run_code },
	['Q'] = { "BINPERSID", 0, run_code },
	['R'] = { "REDUCE", 0, run_code },
	['S'] = { "STRING", 0, run_text },
	['T'] = { "BINSTRING", 0, run_text },
	['U'] = { "SHORT_BINSTRING", 0, run_text },
	['V'] = { "UNICODE", 0, run_text },
	['X'] = { "BINUNICODE", 4, run_unicode4 },
	['a'] = { "APPEND", 0, run_append },
	['b'] = { "BUILD", 0, run_code },
	['c'] = { "GLOBAL", 0, run_code },
	['d'] = { "DICT", 0, run_dict },
	['e'] = { "APPENDS", 0, run_appends },
	['g'] = { "GET", 0, run_text },
	['h'] = { "BINGET", 1, run_binget },
	['i'] = { "INST", 0, run_code },
	['j'] = { "LONG_BINGET", 4, run_long_binget },
	['l'] = { "LIST", 0, run_list },
	['o'] = { "OBJ", 0, run_code },
	['p'] = { "PUT", 0, run_text },
	['q'] = { "BINPUT", 1, run_binput },
	['r'] = { "LONG_BINPUT", 4, run_long_binput },
	['s'] = { "SETITEM", 0, run_setitem },
	['t'] = { "TUPLE", 0, run_tuple },
	['u'] = { "SETITEMS", 0, run_setitems },
	['}'] = { "EMPTY_DICT", 0, run_empty_dict },
	[']'] = { "EMPTY_LIST", 0, run_empty_list },
	[')'] = { "EMPTY_TUPLE", 0, run_empty_tuple },
	[0x80] = { "PROTO", 1, run_proto },
	[0x81] = { "NEWOBJ", 0, run_code },
	[0x82] = { "EXT1", 0, run_code },
	[0x83] = { "EXT2", 0, run_code },
	[0x84] = { "EXT4", 0, run_code },
	[0x85] = { "TUPLE1", 0, run_tuple1 },
	[0x86] = { "TUPLE2", 0, run_tuple2 },
	[0x87] = { "TUPLE3", 0, run_tuple3 },
	[0x88] = { "NEWTRUE", 0, run_true },
	[0x89] = { "NEWFALSE", 0, run_false },
	[0x8a] = { "LONG1", 1, run_long1 },
	[0x8b] = { "LONG4", 4, run_long4 },
	[0x8c] = { "SHORT_BINUNICODE", 1, run_unicode1 },
	[0x8d] = { "BINUNICODE8", 8, run_unicode8 },
	[0x8e] = { "BINBYTES8", 8, run_bytes8 },
	[0x8f] = { "EMPTY_SET", 0, run_empty_set },
	[0x90] = { "ADDITEMS", 0, run_additems },
	[0x91] = { "FROZENSET", 0, run_frozenset },
	[0x92] = { "NEWOBJ_EX", 0, run_code },
	[0x93] = { "STACK_GLOBAL", 0, run_code },
	[0x94] = { "MEMOIZE", 0, run_memoize },
	[0x95] = { "FRAME", 8, run_frame },
	[0x96] = { "BYTEARRAY8", 8, run_bytes8 },
	[0x97] = { "NEXT_BUFFER", 0, run_buffer },
	[0x98] = { "READONLY_BUFFER", 0, run_buffer },
};

static trz_status step(struct vm *vm)
{
	struct trace_input *in = vm->in;
	trz_status status = input_need(in, 1);
	if (status != TRZ_OK)
		return status;
	vm->offset = input_offset(in);
	vm->op = &opcodes[*in->at];
	if (!vm->op->run) {
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: byte %llu: 0x%02x is not a pickle opcode", in->name,
		                (unsigned long long)vm->offset, *in->at);
	}
	in->at++;
	status = input_need(in, vm->op->operand);
	if (status != TRZ_OK)
		return status;
	const uint8_t *operand = in->at;
	in->at += vm->op->operand;
	return vm->op->run(vm, operand);
}

trz_status pickle_read(struct trace_input *in, struct plain *out)
{
	struct vm vm = { .in = in, .op = &opcodes[0x80], .out = out };
	trz_status status = plain_words_reserve(&vm.stack, 1, in->name);
	while (status == TRZ_OK && !vm.stopped)
		status = step(&vm);
	if (status == TRZ_OK)
		out->root = vm.stack.items[vm.stack.count - 1];
	free(vm.stack.items);
	free(vm.marks.items);
	free(vm.memo.items);
	return status;
}
