/* SPDX-License-Identifier: Apache-2.0
 *
 * The program's code: registration by nvcc's start-up code, launches, and queries about kernels. A program names
 * a kernel by the address of a host function, or by the handle that it was given for it, here or by the driver.
 */
#include "runtime_lookalike.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A kernel or a variable of the program. `made` is the driver's function, from the first use on. */
struct code_entry {
	const void *symbol, *image;
	const char *name;
	void *made;
};

/* A hash table with open addressing; a free place has no symbol. */
static struct {
	pthread_mutex_t lock;
	struct code_entry *entries;
	size_t count, room;          /* room is a power of two */
} code = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct code_entry *place_of(struct code_entry *entries, size_t room, const void *symbol)
{
	size_t at = (size_t)(((uintptr_t)symbol * 0x9e3779b97f4a7c15u) >> 20) & (room - 1);
	while (entries[at].symbol && entries[at].symbol != symbol)
		at = (at + 1) & (room - 1);
	return &entries[at];
}

static bool grow(void)
{
	enum { FIRST_ROOM = 1024 };
	size_t room = code.room ? code.room * 2 : FIRST_ROOM;
	struct code_entry *entries = calloc(room, sizeof *entries);
	if (!entries)
		return false;
	for (size_t i = 0; i < code.room; i++)
		if (code.entries[i].symbol)
			*place_of(entries, room, code.entries[i].symbol) = code.entries[i];
	free(code.entries);
	code.entries = entries;
	code.room = room;
	return true;
}

/* A symbol that is registered again, by a library loaded where another one was, replaces the old entry. */
static void enter(struct code_entry new)
{
	pthread_mutex_lock(&code.lock);
	if (code.count * 2 < code.room || grow()) {
		struct code_entry *e = place_of(code.entries, code.room, new.symbol);
		code.count += !e->symbol;
		*e = new;
	}
	pthread_mutex_unlock(&code.lock);
}

static bool find(const void *symbol, struct code_entry *out)
{
	pthread_mutex_lock(&code.lock);
	const struct code_entry *e = code.room ? place_of(code.entries, code.room, symbol) : NULL;
	bool found = symbol && e && e->symbol;
	if (found)
		*out = *e;
	pthread_mutex_unlock(&code.lock);
	return found;
}

void *rt_function(const void *symbol)
{
	struct code_entry e;
	bool is_handle = !find(symbol, &e);
	if (is_handle && !trz_lookalike_is_function(symbol))
		return NULL;
	if (is_handle)
		enter(e = (struct code_entry){.symbol = symbol, .made = (void *)symbol});
	if (!e.made && (e.made = trz_lookalike_function(e.image, e.name)))
		enter(e);
	return e.made;
}

const void *rt_symbol(void *function)
{
	const void *symbol = function;
	pthread_mutex_lock(&code.lock);
	for (size_t i = 0; i < code.room; i++)
		if (code.entries[i].symbol && code.entries[i].symbol != function && code.entries[i].made == function)
			symbol = code.entries[i].symbol;
	pthread_mutex_unlock(&code.lock);
	return symbol;
}

int rt_variable(const void *symbol, cuda_addr *address, size_t *size)
{
	struct code_entry e;
	uint64_t found = 0;
	if (!find(symbol, &e))
		return RT_INVALID_SYMBOL;
	int result = trz_lookalike_variable(e.image, e.name, &found, size);
	*address = found;
	return result;
}

/* ---- what the compiler calls ------------------------------------------------------------ */

LOOKALIKE_API void **__cudaRegisterFatBinary(void *image);
LOOKALIKE_API void __cudaRegisterFatBinaryEnd(void **handle);
LOOKALIKE_API void __cudaUnregisterFatBinary(void **handle);
LOOKALIKE_API void __cudaRegisterFunction(void **handle, const char *symbol, char *function, const char *name,
                                          int limit, void *tid, void *bid, void *block, void *grid, int *size);
LOOKALIKE_API void __cudaRegisterVar(void **handle, char *symbol, char *address, const char *name, int external,
                                     size_t size, int constant, int global);
LOOKALIKE_API void __cudaRegisterManagedVar(void **handle, void **symbol, char *address, const char *name, int external,
                                            size_t size, int constant, int global);
LOOKALIKE_API char __cudaInitModule(void **handle);
LOOKALIKE_API unsigned __cudaPushCallConfiguration(struct rt_dim3 grid, struct rt_dim3 block, size_t shared,
                                                   void *stream);
LOOKALIKE_API cuda_error __cudaPopCallConfiguration(struct rt_dim3 *grid, struct rt_dim3 *block, size_t *shared,
                                                    void *stream);
LOOKALIKE_API cuda_error __cudaGetKernel(void **kernel, const void *symbol);
LOOKALIKE_API cuda_error __cudaLaunchKernel(void *kernel, struct rt_dim3 grid, struct rt_dim3 block, void **arguments,
                                            size_t shared, void *stream);

/* The handle points to the image's address. */
void **__cudaRegisterFatBinary(void *image)
{
	void **handle = malloc(sizeof *handle);
	if (handle)
		*handle = image;
	return handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
	free(handle);
}

/* A variable that host code reaches through a pointer, set at the first use of any managed variable of its module. */
static struct managed {
	struct managed *next;
	void **handle, **pointer;
} *managed;

/* The result says that the caller need not call this again. */
char __cudaInitModule(void **handle)
{
	bool found = true;
	for (const struct managed *m = __atomic_load_n(&managed, __ATOMIC_ACQUIRE); m; m = m->next) {
		cuda_addr address = 0;
		size_t size;
		if (m->handle != handle)
			continue;
		found = rt_bind() == RT_SUCCESS && rt_variable(m->pointer, &address, &size) == RT_SUCCESS && found;
		*m->pointer = (void *)address;
		if (address)
			trz_lookalike_managed(address, size);
	}
	return found;
}

void __cudaRegisterFunction(void **handle, const char *symbol, char *function, const char *name, int limit, void *tid,
                            void *bid, void *block, void *grid, int *size)
{
	(void)function, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)size;
	if (handle)
		enter((struct code_entry){.symbol = symbol, .image = *handle, .name = name});
}

void __cudaRegisterVar(void **handle, char *symbol, char *address, const char *name, int external, size_t size,
                       int constant, int global)
{
	(void)address, (void)external, (void)size, (void)constant, (void)global;
	if (handle)
		enter((struct code_entry){.symbol = symbol, .image = *handle, .name = name});
}

/* The program reads the variable through a pointer, still NULL here: there is no device yet. */
void __cudaRegisterManagedVar(void **handle, void **symbol, char *address, const char *name, int external, size_t size,
                              int constant, int global)
{
	struct managed *m = malloc(sizeof *m);
	if (m) {
		*m = (struct managed){managed, handle, symbol};
		__atomic_store_n(&managed, m, __ATOMIC_RELEASE);
	}
	__cudaRegisterVar(handle, (char *)symbol, address, name, external, size, constant, global);
}

#if RUNTIME_MAJOR < 12
/* References to textures and surfaces; the calls that bind memory to one are refused. */
LOOKALIKE_API void __cudaRegisterTexture(void **handle, const void *variable, const void **address, const char *name,
                                         int dimensions, int normalized, int external);
LOOKALIKE_API void __cudaRegisterSurface(void **handle, const void *variable, const void **address, const char *name,
                                         int dimensions, int external);

void __cudaRegisterTexture(void **handle, const void *variable, const void **address, const char *name, int dimensions,
                           int normalized, int external)
{
	(void)handle, (void)variable, (void)address, (void)name, (void)dimensions, (void)normalized, (void)external;
}

void __cudaRegisterSurface(void **handle, const void *variable, const void **address, const char *name, int dimensions,
                           int external)
{
	(void)handle, (void)variable, (void)address, (void)name, (void)dimensions, (void)external;
}
#endif

/* What <<<...>>> has said, until the stub is called. */
static _Thread_local struct {
	struct {
		struct rt_dim3 grid, block;
		size_t shared;
		void *stream;
	} pushed[16];
	unsigned count;
} configuration;

unsigned __cudaPushCallConfiguration(struct rt_dim3 grid, struct rt_dim3 block, size_t shared, void *stream)
{
	enum { MOST = sizeof configuration.pushed / sizeof configuration.pushed[0] };
	if (configuration.count == MOST)
		return 1;
	configuration.pushed[configuration.count].grid = grid;
	configuration.pushed[configuration.count].block = block;
	configuration.pushed[configuration.count].shared = shared;
	configuration.pushed[configuration.count++].stream = stream;
	return 0;
}

cuda_error __cudaPopCallConfiguration(struct rt_dim3 *grid, struct rt_dim3 *block, size_t *shared, void *stream)
{
	if (configuration.count == 0)
		return rt_result(RT_INVALID_VALUE);
	configuration.count--;
	*grid = configuration.pushed[configuration.count].grid;
	*block = configuration.pushed[configuration.count].block;
	*shared = configuration.pushed[configuration.count].shared;
	memcpy(stream, &configuration.pushed[configuration.count].stream, sizeof(void *));
	return RT_SUCCESS;
}

/* ---- launches ------------------------------------------------------------ */

static int check(const void *function, struct rt_dim3 grid, struct rt_dim3 block)
{
	const unsigned blocks[3] = {grid.x, grid.y, grid.z}, threads[3] = {block.x, block.y, block.z};
	if (!function)
		return RT_INVALID_FUNCTION;
	return trz_lookalike_shape_fits(blocks, threads) ? RT_SUCCESS : RT_INVALID_CONFIGURATION;
}

static int launch(void *function, struct rt_dim3 grid, struct rt_dim3 block, void **arguments, size_t shared,
                  void *stream)
{
	int result = check(function, grid, block);
	if (result)
		return result;
	return cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream,
	                      arguments, NULL);
}

/* Works before the program's device is ready, too, as in static constructors. */
cuda_error __cudaGetKernel(void **kernel, const void *symbol)
{
	if (!kernel)
		return rt_result(RT_INVALID_VALUE);
	*kernel = rt_function(symbol);
	return *kernel ? RT_SUCCESS : rt_result(RT_INVALID_FUNCTION);
}

cuda_error __cudaLaunchKernel(void *kernel, struct rt_dim3 grid, struct rt_dim3 block, void **arguments, size_t shared,
                              void *stream)
{
	RT_ENTER(cudaLaunchKernel);
	return rt_result(launch(kernel, grid, block, arguments, shared, stream));
}

cuda_error cudaLaunchKernel(const void *symbol, struct rt_dim3 grid, struct rt_dim3 block, void **arguments,
                            size_t shared, void *stream)
{
	RT_ENTER(cudaLaunchKernel);
	return rt_result(launch(rt_function(symbol), grid, block, arguments, shared, stream));
}

cuda_error cudaLaunchCooperativeKernel(const void *symbol, struct rt_dim3 grid, struct rt_dim3 block, void **arguments,
                                       size_t shared, void *stream)
{
	RT_ENTER(cudaLaunchCooperativeKernel);
	void *function = rt_function(symbol);
	int result = check(function, grid, block);
	return rt_result(result ? result : cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y,
	                                                             block.z, (unsigned)shared, stream, arguments));
}

cuda_error cudaLaunchKernelExC(const struct rt_launch *config, const void *symbol, void **arguments)
{
	RT_ENTER(cudaLaunchKernelExC);
	if (!config)
		return rt_result(RT_INVALID_VALUE);
	return rt_result(launch(rt_function(symbol), config->grid, config->block, arguments, config->shared_bytes,
	                        config->stream));
}

/* ---- what is asked of kernels ------------------------------------------------------------ */

cuda_error cudaFuncGetAttributes(struct rt_function *out, const void *symbol)
{
	RT_ENTER(cudaFuncGetAttributes);
	void *f = rt_function(symbol);
	int value[TRZ_CU_FUNC_ATTRIBUTE_MAX] = {0};
	if (!f)
		return rt_result(RT_INVALID_FUNCTION);
	for (int i = 0; i < TRZ_CU_FUNC_ATTRIBUTE_MAX; i++)
		cuFuncGetAttribute(&value[i], i, f);
	*out = (struct rt_function){
		.threads = value[0], .shared_bytes = (size_t)value[1], .constant_bytes = (size_t)value[2],
		.local_bytes = (size_t)value[3], .registers = value[4], .ptx = value[5], .binary = value[6],
		.cache = value[7], .dynamic_shared_bytes = value[8], .carveout = value[9],
#if RUNTIME_MAJOR >= 12
		.cluster_set = value[10], .cluster = {value[11], value[12], value[13]}, .cluster_any_size = value[14],
		.cluster_policy = value[15],
#endif
	};
	return RT_SUCCESS;
}

cuda_error cudaFuncSetAttribute(const void *symbol, int attribute, int value)
{
	RT_ENTER(cudaFuncSetAttribute);
	void *f = rt_function(symbol);
	return rt_result(f ? cuFuncSetAttribute(f, attribute, value) : RT_INVALID_FUNCTION);
}

cuda_error cudaKernelSetAttributeForDevice(void *kernel, int attribute, int value, int device)
{
	RT_ENTER(cudaKernelSetAttributeForDevice);
	return rt_result(cuKernelSetAttribute(attribute, value, kernel, device));
}

cuda_error cudaFuncSetCacheConfig(const void *symbol, int config)
{
	RT_ENTER(cudaFuncSetCacheConfig);
	void *f = rt_function(symbol);
	return rt_result(f ? cuFuncSetCacheConfig(f, config) : RT_INVALID_FUNCTION);
}

cuda_error cudaFuncGetName(const char **name, const void *symbol)
{
	RT_ENTER(cudaFuncGetName);
	void *f = rt_function(symbol);
	return rt_result(f ? cuFuncGetName(name, f) : RT_INVALID_FUNCTION);
}

cuda_error cudaFuncGetParamInfo(const void *symbol, size_t index, size_t *offset, size_t *size)
{
	RT_ENTER(cudaFuncGetParamInfo);
	void *f = rt_function(symbol);
	return rt_result(f ? cuFuncGetParamInfo(f, index, offset, size) : RT_INVALID_FUNCTION);
}

cuda_error cudaGetFuncBySymbol(void **function, const void *symbol)
{
	RT_ENTER(cudaGetFuncBySymbol);
	if (!function)
		return rt_result(RT_INVALID_VALUE);
	*function = rt_function(symbol);
	return rt_result(*function ? RT_SUCCESS : RT_INVALID_FUNCTION);
}

cuda_error cudaGetKernel(void **kernel, const void *symbol)
{
	RT_COUNT(cudaGetKernel);
	return __cudaGetKernel(kernel, symbol);
}

cuda_error cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *symbol, int block, size_t shared)
{
	RT_ENTER(cudaOccupancyMaxActiveBlocksPerMultiprocessor);
	void *f = rt_function(symbol);
	return rt_result(f ? cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, block, shared) : RT_INVALID_FUNCTION);
}

cuda_error cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *symbol, int block,
                                                                  size_t shared, unsigned flags)
{
	RT_COUNT(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
	(void)flags;
	return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, symbol, block, shared);
}

cuda_error cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *symbol, int blocks, int block)
{
	RT_ENTER(cudaOccupancyAvailableDynamicSMemPerBlock);
	return rt_result(cuOccupancyAvailableDynamicSMemPerBlock(bytes, rt_function(symbol), blocks, block));
}

cuda_error cudaOccupancyMaxActiveClusters(int *clusters, const void *symbol, const struct rt_launch *config)
{
	RT_ENTER(cudaOccupancyMaxActiveClusters);
	(void)config;
	return rt_result(cuOccupancyMaxActiveClusters(clusters, rt_function(symbol), NULL));
}

cuda_error cudaOccupancyMaxPotentialClusterSize(int *size, const void *symbol, const struct rt_launch *config)
{
	RT_ENTER(cudaOccupancyMaxPotentialClusterSize);
	(void)config;
	return rt_result(cuOccupancyMaxPotentialClusterSize(size, rt_function(symbol), NULL));
}

/* ---- libraries ------------------------------------------------------------ */

cuda_error cudaLibraryLoadData(void **library, const void *image, int *options, void **values, unsigned count,
                               int *library_options, void **library_values, unsigned library_count)
{
	RT_ENTER(cudaLibraryLoadData);
	return rt_result(cuLibraryLoadData(library, image, options, values, count, library_options, library_values,
	                                   library_count));
}

cuda_error cudaLibraryLoadFromFile(void **library, const char *path, int *options, void **values, unsigned count,
                                   int *library_options, void **library_values, unsigned library_count)
{
	RT_ENTER(cudaLibraryLoadFromFile);
	return rt_result(cuLibraryLoadFromFile(library, path, options, values, count, library_options, library_values,
	                                       library_count));
}

cuda_error cudaLibraryUnload(void *library)
{
	RT_ENTER(cudaLibraryUnload);
	return rt_result(cuLibraryUnload(library));
}

cuda_error cudaLibraryGetKernel(void **kernel, void *library, const char *name)
{
	RT_ENTER(cudaLibraryGetKernel);
	return rt_result(cuLibraryGetKernel(kernel, library, name));
}

cuda_error cudaLibraryGetKernelCount(unsigned *count, void *library)
{
	RT_ENTER(cudaLibraryGetKernelCount);
	return rt_result(cuLibraryGetKernelCount(count, library));
}

cuda_error cudaLibraryEnumerateKernels(void **kernels, unsigned room, void *library)
{
	RT_ENTER(cudaLibraryEnumerateKernels);
	return rt_result(cuLibraryEnumerateKernels(kernels, room, library));
}

cuda_error cudaLibraryGetGlobal(void **address, size_t *size, void *library, const char *name)
{
	cuda_addr found = 0;
	RT_ENTER(cudaLibraryGetGlobal);
	if (!address)
		return rt_result(RT_INVALID_VALUE);
	int result = cuLibraryGetGlobal(&found, size, library, name);
	*address = (void *)found;
	return rt_result(result);
}

cuda_error cudaLibraryGetManaged(void **address, size_t *size, void *library, const char *name)
{
	RT_COUNT(cudaLibraryGetManaged);
	return cudaLibraryGetGlobal(address, size, library, name);
}
