/* SPDX-License-Identifier: Apache-2.0
 *
 * NVRTC: every program compiles, to an image whose kernels do nothing and do not tell their parameters. The stand-in
 * finds the kernels' names in the source.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

static const char HEAD[] = "// made by terrazzo's stand-in for NVRTC\n.version 8.0\n.target sm_80\n.address_size 64\n";
static const char ENTRY[] = ".visible .entry %s()\n{\nret;\n}\n";

enum { MOST_KERNELS = 256 };

/* The source's kernels, and the names that the user's expressions are lowered to. */
struct program {
	int count;
	char *names[MOST_KERNELS];
};

/* The place of a name among the program's; adds it if need be. -1: no room. An expression such as scale<float, 4>
 * becomes a name that an image can have. */
static int add_name(struct program *p, const char *text, size_t length)
{
	char *name = strndup(text, length);
	int place = 0;
	for (char *c = name; c && *c; c++)
		if (!isalnum((unsigned char)*c))
			*c = '_';
	while (name && place < p->count && strcmp(p->names[place], name) != 0)
		place++;
	if (!name || place == MOST_KERNELS)
		place = -1;
	else if (place == p->count)
		p->names[p->count++] = name;
	if (place < 0 || p->names[place] != name)
		free(name);
	return place;
}

static int is_of_name(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* The last word before a parenthesis, and moves *at there; NULL: this declaration has none. */
static const char *last_word(const char **at, size_t *length)
{
	const char *word = NULL, *c = *at;
	for (; *c && !strchr("(;{", *c); c++)
		if (is_of_name(*c) && (c == *at || !is_of_name(c[-1])))
			word = c;
	*at = c;
	*length = 0;
	while (word && is_of_name(word[*length]))
		++*length;
	return *c == '(' ? word : NULL;
}

/* In `__global__ void __launch_bounds__(256) name(...)` the kernel is name, not the attribute. */
static void find_kernels(struct program *p, const char *source)
{
	static const char mark[] = "__global__";
	for (const char *at = source; at && (at = strstr(at, mark));) {
		size_t length;
		at += sizeof mark - 1;
		const char *word = last_word(&at, &length);
		while (word && strncmp(word, "__", 2) == 0) {
			at = strchr(at, ')');
			word = at ? (at++, last_word(&at, &length)) : NULL;
		}
		if (word)
			add_name(p, word, length);
	}
}

/* Keeps PyTorch from saving what it compiled here in a folder, where a program on a real device would find it. */
__attribute__((constructor)) static void keep_nothing(void)
{
	static char off[] = "USE_PYTORCH_KERNEL_CACHE=0";
	putenv(off);
}

int nvrtcVersion(int *major, int *minor)
{
	*major = STANDIN_CUDA_MAJOR;
	*minor = STANDIN_CUDA_MINOR;
	return 0;
}

const char *nvrtcGetErrorString(int status)
{
	return status ? "refused by terrazzo's stand-in for NVRTC" : "NVRTC_SUCCESS";
}

int nvrtcCreateProgram(void **made, const char *source, const char *name)
{
	(void)name;
	*made = standin_descriptor(sizeof(struct program));
	find_kernels(*made, source);
	return 0;
}

int nvrtcDestroyProgram(void **program)
{
	struct program *p = *program;
	for (int i = 0; p && i < p->count; i++)
		free(p->names[i]);
	free(p);
	*program = NULL;
	return 0;
}

int nvrtcAddNameExpression(void *program, const char *name)
{
	if (add_name(program, name, strlen(name)) < 0)
		return standin_refuse("nvrtcAddNameExpression", "a program of more than 256 kernels", 11);
	return 0;
}

/* The lowered name of an expression; it lives as long as its program. */
int nvrtcGetLoweredName(void *program, const char *name, const char **lowered)
{
	struct program *p = program;
	int place = add_name(p, name, strlen(name));
	if (place < 0)
		return standin_refuse("nvrtcGetLoweredName", "a program of more than 256 kernels", 11);
	*lowered = p->names[place];
	return 0;
}

static size_t entry_bytes(const char *name)
{
	return sizeof ENTRY - sizeof "%s" + strlen(name);
}

static int size_of_image(const struct program *p, size_t *size)
{
	*size = sizeof HEAD;
	for (int i = 0; i < p->count; i++)
		*size += entry_bytes(p->names[i]);
	return 0;
}

static int image(const struct program *p, char *to)
{
	memcpy(to, HEAD, sizeof HEAD);
	to += sizeof HEAD - 1;
	for (int i = 0; i < p->count; i++) {
		size_t bytes = entry_bytes(p->names[i]);
		snprintf(to, bytes + 1, ENTRY, p->names[i]);
		to += bytes;
	}
	return 0;
}

int nvrtcGetPTXSize(void *program, size_t *size)
{
	return size_of_image(program, size);
}

int nvrtcGetCUBINSize(void *program, size_t *size)
{
	return size_of_image(program, size);
}

int nvrtcGetPTX(void *program, char *to)
{
	return image(program, to);
}

int nvrtcGetCUBIN(void *program, char *to)
{
	return image(program, to);
}

int nvrtcGetProgramLogSize(void *program, size_t *size)
{
	(void)program;
	*size = 1;
	return 0;
}

int nvrtcGetProgramLog(void *program, char *log)
{
	(void)program;
	*log = '\0';
	return 0;
}
