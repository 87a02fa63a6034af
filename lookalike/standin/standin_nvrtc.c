/* SPDX-License-Identifier: Apache-2.0
 *
 * NVRTC: every program compiles, to an image that holds nothing. Names of functions stay as they were given.
 */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

static const char IMAGE[] = "// made by terrazzo's stand-in for NVRTC\n.version 8.0\n.target sm_80\n.address_size 64\n";

enum { NAMES = 16 };

/* The names asked for, so that their lowered forms can be given back until the program ends. */
struct program {
	int count;
	char *names[NAMES];
};

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
	(void)source, (void)name;
	*made = standin_descriptor(sizeof(struct program));
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

int nvrtcGetLoweredName(void *program, const char *name, const char **lowered)
{
	struct program *p = program;
	if (p->count == NAMES)
		return standin_refuse("nvrtcGetLoweredName", "a program of more than 16 named functions", 11);
	char *copy = strdup(name);
	if (!copy)
		return 1;
	p->names[p->count++] = copy;
	*lowered = copy;
	return 0;
}

static int size_of_image(size_t *size)
{
	*size = sizeof IMAGE;
	return 0;
}

static int image(char *to)
{
	memcpy(to, IMAGE, sizeof IMAGE);
	return 0;
}

int nvrtcGetPTXSize(void *program, size_t *size)
{
	(void)program;
	return size_of_image(size);
}

int nvrtcGetCUBINSize(void *program, size_t *size)
{
	(void)program;
	return size_of_image(size);
}

int nvrtcGetPTX(void *program, char *to)
{
	(void)program;
	return image(to);
}

int nvrtcGetCUBIN(void *program, char *to)
{
	(void)program;
	return image(to);
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
