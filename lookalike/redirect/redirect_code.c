/* SPDX-License-Identifier: Apache-2.0
 *
 * Machine code of x86-64. A function is redirected by a jump over its first bytes, which reaches 2 GiB; so it leads to
 * an island nearby, whose entries go on to any address:
 *
 *	entry:	jmp *function		the target's, at first the next instruction
 *		lea target, %r11
 *		jmp *enter		of the island
 */
#include "redirect.h"

#include <sys/mman.h>
#include <unistd.h>

enum { ENTRY_BYTES = 32, PAGE_BYTES = 4096 };

/* An island is pages of entries, then this. */
struct island_data {
	void (*enter)(void);
	struct redirect_target targets[];
};

/* Calls redirect_find with what r11 points to, and goes on to what it returns, with all arguments as they were. */
void redirect_enter(void);
__asm__(".text\n"
        ".type redirect_enter, @function\n"
        ".hidden redirect_enter\n"
        ".globl redirect_enter\n"
        "redirect_enter:\n"
        "	.cfi_startproc\n"
        "	pushq %rbp\n"
        "	.cfi_def_cfa_offset 16\n"
        "	.cfi_offset %rbp, -16\n"
        "	movq %rsp, %rbp\n"
        "	.cfi_def_cfa_register %rbp\n"
        "	pushq %rdi\n	pushq %rsi\n	pushq %rdx\n	pushq %rcx\n"
        "	pushq %r8\n	pushq %r9\n	pushq %rax\n	pushq %r10\n"
        "	subq $128, %rsp\n"
        "	movups %xmm0, (%rsp)\n	movups %xmm1, 16(%rsp)\n"
        "	movups %xmm2, 32(%rsp)\n	movups %xmm3, 48(%rsp)\n"
        "	movups %xmm4, 64(%rsp)\n	movups %xmm5, 80(%rsp)\n"
        "	movups %xmm6, 96(%rsp)\n	movups %xmm7, 112(%rsp)\n"
        "	movq %r11, %rdi\n"
        "	call redirect_find\n"
        "	movq %rax, %r11\n"
        "	movups (%rsp), %xmm0\n	movups 16(%rsp), %xmm1\n"
        "	movups 32(%rsp), %xmm2\n	movups 48(%rsp), %xmm3\n"
        "	movups 64(%rsp), %xmm4\n	movups 80(%rsp), %xmm5\n"
        "	movups 96(%rsp), %xmm6\n	movups 112(%rsp), %xmm7\n"
        "	addq $128, %rsp\n"
        "	popq %r10\n	popq %rax\n	popq %r9\n	popq %r8\n"
        "	popq %rcx\n	popq %rdx\n	popq %rsi\n	popq %rdi\n"
        "	popq %rbp\n"
        "	.cfi_def_cfa %rsp, 8\n"
        "	jmp *%r11\n"
        "	.cfi_endproc\n"
        "	.size redirect_enter, .-redirect_enter\n");

/* ---- islands ---- */

static bool reaches(uintptr_t from, uintptr_t to)
{
	return from < to ? to - from < INT32_MAX : from - to < INT32_MAX;
}

/* Free memory that all of [low, high) reaches: it is looked for in steps, below and above. */
static void *map_near(uintptr_t low, uintptr_t high, size_t bytes)
{
	enum { STEP = 1 << 20, STEPS = 1 << 10 };
	uintptr_t below = low & ~(uintptr_t)(PAGE_BYTES - 1), above = (high + STEP) & ~(uintptr_t)(STEP - 1);
	for (uintptr_t i = 1; i <= STEPS; i++) {
		uintptr_t places[] = { below - i * STEP, above + i * STEP };
		for (size_t k = 0; k < 2; k++) {
			if (places[k] > high + INT32_MAX || !reaches(places[k], high) || !reaches(places[k] + bytes, low))
				continue;
			void *at = mmap((void *)places[k], bytes, PROT_READ | PROT_WRITE,
			                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
			if (at == (void *)places[k])
				return at;
			if (at != MAP_FAILED)
				munmap(at, bytes);
		}
	}
	return NULL;
}

static size_t code_bytes(size_t room)
{
	return (room * ENTRY_BYTES + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
}

static struct island_data *data_of(const struct redirect_island *island)
{
	return (struct island_data *)(void *)(island->code + code_bytes(island->room));
}

bool redirect_make_island(struct redirect_island *island, uintptr_t low, uintptr_t high, size_t room)
{
	size_t bytes = code_bytes(room) + sizeof(struct island_data) + room * sizeof(struct redirect_target);
	*island = (struct redirect_island){ .code = map_near(low, high, bytes), .room = room, .bytes = bytes };
	if (!island->code)
		return false;
	data_of(island)->enter = redirect_enter;
	island->targets = data_of(island)->targets;
	return true;
}

static uint8_t *put(uint8_t *at, const char *code, size_t bytes)
{
	memcpy(at, code, bytes);
	return at + bytes;
}

/* The distance from the end of the four bytes at `at`. */
static uint8_t *put_distance(uint8_t *at, const void *to)
{
	int32_t distance = (int32_t)((intptr_t)to - (intptr_t)(at + 4));
	memcpy(at, &distance, sizeof distance);
	return at + sizeof distance;
}

const void *redirect_entry(const struct redirect_island *island, size_t entry)
{
	return island->code + entry * ENTRY_BYTES;
}

void redirect_add(struct redirect_island *island, const char *name, int runtime)
{
	uint8_t *at = island->code + island->count * ENTRY_BYTES;
	struct redirect_target *target = &island->targets[island->count++];
	uint8_t *first = put_distance(put(at, "\xff\x25", 2), &target->function);
	at = put_distance(put(first, "\x4c\x8d\x1d", 3), target);
	put_distance(put(at, "\xff\x25", 2), &data_of(island)->enter);
	*target = (struct redirect_target){ first, name, runtime };
}

void redirect_add_known(struct redirect_island *island, void *function)
{
	redirect_add(island, NULL, 0);
	island->targets[island->count - 1].function = function;
}

bool redirect_close_island(struct redirect_island *island)
{
	if (mprotect(island->code, code_bytes(island->room), PROT_READ | PROT_EXEC) == 0)
		return true;
	munmap(island->code, island->bytes);
	return false;
}

/* ---- jumps ---- */

static bool protect(uintptr_t low, uintptr_t high, int protection)
{
	uintptr_t from = low & ~(uintptr_t)(PAGE_BYTES - 1);
	return mprotect((void *)from, high - from, protection) == 0;
}

bool redirect_unlock(uintptr_t low, uintptr_t high)
{
	return protect(low, high, PROT_READ | PROT_WRITE);
}

bool redirect_lock(uintptr_t low, uintptr_t high)
{
	return protect(low, high, PROT_READ | PROT_EXEC);
}

void redirect_jump(uintptr_t from, const void *to)
{
	put_distance(put((uint8_t *)from, "\xe9", 1), to);
}
