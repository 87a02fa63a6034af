/* SPDX-License-Identifier: Apache-2.0
 *
 * Device code: modules, libraries, kernels, queries about them, and launches. Here a library is a module and a kernel a
 * function. Code is read when a parameter or a variable is first needed.
 */
#include "driver_graph.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bits.h"
#include "error.h"
#include "lookalike/fatbin/fatbin.h"

struct look_variable {
	SLIST_ENTRY(look_variable) link;
	char *name;
	cuda_addr address;
	uint64_t bytes;
};

/* The code of a module, or one image that a program has registered (in a list of its own). */
struct look_module {
	SLIST_ENTRY(look_module) link;
	const void *image;           /* NULL: it is no readable code */
	size_t bytes;                /* of the image; FATBIN_UNKNOWN_SIZE: its own headers tell */
	const void *registered_as;   /* NULL: loaded, not registered */
	bool unloaded;               /* it lives on as long as it has functions, which graphs may name */
	struct fatbin *fatbin, *data;  /* for functions, and for variables: may be the same; NULL: not opened yet */
	SLIST_HEAD(, look_function) functions;
	SLIST_HEAD(, look_variable) variables;
};

/* Lives as long as the process, since graphs name it. */
struct look_function {
	SLIST_ENTRY(look_function) link, all;
	struct look_module *module;
	const char *name;
	const struct fatbin_kernel *kernel;  /* NULL while `resolved`: the code does not describe it */
	bool resolved;
	bool sleeps;                 /* it keeps its stream busy for as many cycles as its parameter says */
	uint64_t mixed;              /* one bit for each parameter that has held anything but addresses; set atomically */
	int attributes[TRZ_CU_FUNC_ATTRIBUTE_MAX];
	struct look_old_launch *old; /* driver_old.c; NULL: it was never launched that way */
	struct look_parts parts;
};

static pthread_mutex_t code_lock = PTHREAD_MUTEX_INITIALIZER;
static SLIST_HEAD(, look_module) registered, loaded;
static SLIST_HEAD(, look_function) all_functions;

/* ---- modules ------------------------------------------------------------ */

static unsigned architecture(void)
{
	const struct sim_profile *p = look.profile;
	return p ? p->compute_major * 10 + p->compute_minor : 0;
}

static struct look_module *new_module(const void *image, size_t bytes)
{
	struct look_module *m = calloc(1, sizeof *m);
	if (!m)
		return NULL;
	m->image = image;
	m->bytes = bytes;
	return m;
}

/* Whether it is a module, or a library, that has not been unloaded. */
static bool is_module(const void *handle)
{
	const struct look_module *m;
	bool lives = false;
	pthread_mutex_lock(&code_lock);
	SLIST_FOREACH(m, &loaded, link)
		lives |= m == handle && !m->unloaded;
	SLIST_FOREACH(m, &registered, link)
		lives |= m == handle;
	pthread_mutex_unlock(&code_lock);
	return lives;
}

static struct fatbin *fatbin_of(struct look_module *m)
{
	if (!m->fatbin && m->image && fatbin_open(m->image, m->bytes, architecture(), &m->fatbin) != TRZ_OK) {
		m->fatbin = NULL;
		m->image = NULL;
	}
	return m->fatbin;
}

/* The code with variables' initial values: PTX lacks them, and if the device's image is that, another's cubin. */
static struct fatbin *data_of(struct look_module *m)
{
	struct fatbin_image image;
	if (m->data)
		return m->data;
	m->data = fatbin_of(m);
	if (!m->data || fatbin_image(m->data, &image) != TRZ_OK || !image.ptx || image.variable_count == 0)
		return m->data;
	struct fatbin *newest;
	if (fatbin_open(m->image, m->bytes, 0, &newest) != TRZ_OK)
		return m->data;
	if (fatbin_load(newest) == TRZ_OK)
		m->data = newest;
	else
		fatbin_close(newest);
	return m->data;
}

static void free_module(struct look_module *m)
{
	if (m->data != m->fatbin)
		fatbin_close(m->data);
	fatbin_close(m->fatbin);
	free(m);
}

/* Reads the image now: the program may free it when the call returns. */
static cuda_result load(void **module, const void *image, size_t bytes)
{
	struct look_module *m = new_module(image, bytes);
	LOOK_NEED(m, OUT_OF_MEMORY);
	if (!fatbin_of(m) || fatbin_load(m->fatbin) == TRZ_ERROR_BAD_INPUT) {
		bool ptx = m->fatbin && fatbin_is_ptx(m->fatbin);
		free_module(m);
		return ptx ? TRZ_CUDA_ERROR_INVALID_PTX : TRZ_CUDA_ERROR_INVALID_IMAGE;
	}
	data_of(m);
	pthread_mutex_lock(&code_lock);
	SLIST_INSERT_HEAD(&loaded, m, link);
	pthread_mutex_unlock(&code_lock);
	*module = m;
	return TRZ_CUDA_SUCCESS;
}

static cuda_result load_file(void **module, const char *path)
{
	struct stat st;
	LOOK_NEED(module && path, INVALID_VALUE);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	LOOK_NEED(fd >= 0, FILE_NOT_FOUND);
	size_t size = fstat(fd, &st) == 0 && st.st_size > 0 ? (size_t)st.st_size : 0;
	/* One byte more than the file: PTX ends with a NUL. */
	char *image = size ? calloc(1, size + 1) : NULL;
	bool whole = image && read(fd, image, size) == (ssize_t)size;
	close(fd);
	cuda_result result = whole ? load(module, image, size) : TRZ_CUDA_ERROR_INVALID_IMAGE;
	free(image);
	return result;
}

cuda_result cuModuleLoadData(void **module, const void *image)
{
	LOOK_ENTER(cuModuleLoadData);
	LOOK_NEED(look_context(), INVALID_CONTEXT);
	LOOK_NEED(module && image, INVALID_VALUE);
	return load(module, image, FATBIN_UNKNOWN_SIZE);
}

/* A load's result, after answers to its options of the compiler. */
static cuda_result answered(cuda_result result, unsigned count, int *options, void **values)
{
	look_answer_jit(result == TRZ_CUDA_SUCCESS ? "" : trz_last_error(), count, options, values);
	return result;
}

cuda_result cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values)
{
	LOOK_NEED(count == 0 || (options && values), INVALID_VALUE);
	return answered(cuModuleLoadData(module, image), count, options, values);
}

cuda_result cuModuleLoadFatBinary(void **module, const void *image)
{
	return cuModuleLoadData(module, image);
}

cuda_result cuModuleLoad(void **module, const char *path)
{
	LOOK_ENTER(cuModuleLoad);
	LOOK_NEED(look_context(), INVALID_CONTEXT);
	return load_file(module, path);
}

/* Frees the module's variables, and the rest if there are no functions of it. */
static cuda_result unload(struct look_module *m)
{
	LOOK_NEED(is_module(m), INVALID_HANDLE);
	pthread_mutex_lock(&code_lock);
	struct look_variable *variables = SLIST_FIRST(&m->variables);
	SLIST_INIT(&m->variables);
	m->unloaded = !m->registered_as;
	bool whole = m->unloaded && SLIST_EMPTY(&m->functions);
	if (whole)
		SLIST_REMOVE(&loaded, m, look_module, link);
	pthread_mutex_unlock(&code_lock);
	for (struct look_variable *v = variables, *next; v; v = next) {
		next = SLIST_NEXT(v, link);
		cuMemFree_v2(v->address);
		free(v->name);
		free(v);
	}
	if (whole)
		free_module(m);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuModuleUnload(void *module)
{
	LOOK_ENTER(cuModuleUnload);
	return unload(module);
}

/* 1 eager, 2 lazy. */
cuda_result cuModuleGetLoadingMode(int *mode)
{
	LOOK_ENTER(cuModuleGetLoadingMode);
	LOOK_NEED(mode, INVALID_VALUE);
	*mode = 2;
	return TRZ_CUDA_SUCCESS;
}

/* A library belongs to no context. */
cuda_result cuLibraryLoadData(void **library, const void *image, int *options, void **values, unsigned count,
                              int *library_options, void **library_values, unsigned library_count)
{
	LOOK_ENTER(cuLibraryLoadData);
	(void)library_options, (void)library_values, (void)library_count;
	LOOK_NEED(library && image && (count == 0 || (options && values)), INVALID_VALUE);
	return answered(load(library, image, FATBIN_UNKNOWN_SIZE), count, options, values);
}

cuda_result cuLibraryLoadFromFile(void **library, const char *path, int *options, void **values, unsigned count,
                                  int *library_options, void **library_values, unsigned library_count)
{
	LOOK_ENTER(cuLibraryLoadFromFile);
	(void)library_options, (void)library_values, (void)library_count;
	LOOK_NEED(count == 0 || (options && values), INVALID_VALUE);
	return answered(load_file(library, path), count, options, values);
}

cuda_result cuLibraryUnload(void *library)
{
	LOOK_ENTER(cuLibraryUnload);
	return unload(library);
}

cuda_result cuLibraryGetModule(void **module, void *library)
{
	LOOK_ENTER(cuLibraryGetModule);
	LOOK_NEED(look_context(), INVALID_CONTEXT);
	LOOK_NEED(module, INVALID_VALUE);
	LOOK_NEED(is_module(library), INVALID_HANDLE);
	*module = library;
	return TRZ_CUDA_SUCCESS;
}

/* ---- variables ------------------------------------------------------------ */

static struct look_variable *find_variable(const struct look_module *m, const char *name)
{
	struct look_variable *v;
	SLIST_FOREACH(v, &m->variables, link)
		if (strcmp(v->name, name) == 0)
			break;
	return v;
}

/* Makes a variable, in plain memory of its own, with its initial value from the code. */
static cuda_result make_variable(struct look_module *m, const struct fatbin_variable *known, struct look_variable **out)
{
	enum { ATTACH_GLOBAL = 1 };
	struct look_variable *v = calloc(1, sizeof *v);
	char *name = strdup(known->name);
	cuda_result result = TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	if (v && name && known->managed)
		result = cuMemAllocManaged(&v->address, max_u64(known->bytes, 1), ATTACH_GLOBAL);
	else if (v && name)
		result = cuMemAlloc_v2(&v->address, max_u64(known->bytes, 1));
	if (result == TRZ_CUDA_SUCCESS)
		result = known->initial ? cuMemcpyHtoD_v2(v->address, known->initial, known->bytes)
		                        : cuMemsetD8_v2(v->address, 0, known->bytes);
	if (result != TRZ_CUDA_SUCCESS) {
		free(name);
		free(v);
		return result;
	}
	v->name = name;
	v->bytes = known->bytes;
	SLIST_INSERT_HEAD(&m->variables, v, link);
	*out = v;
	return result;
}

cuda_result cuModuleGetGlobal_v2(cuda_addr *address, size_t *size, void *module, const char *name)
{
	struct look_module *m = module;
	const struct fatbin_variable *known = NULL;
	LOOK_ENTER(cuModuleGetGlobal_v2);
	LOOK_NEED(name, INVALID_VALUE);
	LOOK_NEED(is_module(m), INVALID_HANDLE);
	cuda_result result = TRZ_CUDA_SUCCESS;
	pthread_mutex_lock(&code_lock);
	struct look_variable *v = find_variable(m, name);
	if (!v && (!data_of(m) || fatbin_variable(m->data, name, &known) != TRZ_OK))
		result = TRZ_CUDA_ERROR_NOT_FOUND;
	else if (!v)
		result = make_variable(m, known, &v);
	pthread_mutex_unlock(&code_lock);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	if (address)
		*address = v->address;
	if (size)
		*size = v->bytes;
	return result;
}

cuda_result cuLibraryGetGlobal(cuda_addr *address, size_t *size, void *library, const char *name)
{
	return cuModuleGetGlobal_v2(address, size, library, name);
}

cuda_result cuLibraryGetManaged(cuda_addr *address, size_t *size, void *library, const char *name)
{
	return cuModuleGetGlobal_v2(address, size, library, name);
}

/* ---- functions ------------------------------------------------------------ */

/* With the lock. */
static struct look_function *new_function(struct look_module *m, const char *name)
{
	struct look_function *f = calloc(1, sizeof *f);
	if (!f)
		return NULL;
	f->module = m;
	f->name = name;
	f->sleeps = strstr(name, "11spin_kernelEl");  /* PyTorch's spin_kernel(int64_t): torch.cuda._sleep */
	SLIST_INSERT_HEAD(&all_functions, f, all);
	return f;
}

bool trz_lookalike_is_function(const void *handle)
{
	const struct look_function *f;
	pthread_mutex_lock(&code_lock);
	SLIST_FOREACH(f, &all_functions, all)
		if (f == handle)
			break;
	pthread_mutex_unlock(&code_lock);
	return f;
}

struct look_old_launch **look_function_old(void *function)
{
	return &((struct look_function *)function)->old;
}

/* What the code says of the function; looked up once. */
static const struct fatbin_kernel *kernel_of(struct look_function *f)
{
	if (__atomic_load_n(&f->resolved, __ATOMIC_ACQUIRE))
		return f->kernel;
	pthread_mutex_lock(&code_lock);
	const struct fatbin_kernel *found = NULL;
	if (!f->resolved && fatbin_of(f->module) && fatbin_kernel(f->module->fatbin, f->name, &found) == TRZ_OK)
		f->kernel = found;
	__atomic_store_n(&f->resolved, true, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&code_lock);
	return f->kernel;
}

/* A function refers to its name in the code. */
cuda_result cuModuleGetFunction(void **function, void *module, const char *name)
{
	struct look_module *m = module;
	struct look_function *f;
	const struct fatbin_kernel *kernel = NULL;
	LOOK_ENTER(cuModuleGetFunction);
	LOOK_NEED(function && name, INVALID_VALUE);
	LOOK_NEED(is_module(m), INVALID_HANDLE);
	pthread_mutex_lock(&code_lock);
	SLIST_FOREACH(f, &m->functions, link)
		if (strcmp(f->name, name) == 0)
			break;
	if (!f && fatbin_of(m) && fatbin_kernel(m->fatbin, name, &kernel) == TRZ_OK &&
	    (f = new_function(m, kernel->name))) {
		f->kernel = kernel;
		f->resolved = true;
		SLIST_INSERT_HEAD(&m->functions, f, link);
	}
	pthread_mutex_unlock(&code_lock);
	LOOK_NEED(f, NOT_FOUND);
	*function = f;
	return TRZ_CUDA_SUCCESS;
}

/* Under the lock; NULL: no memory. Images are looked up seldom, so a list will do. */
static struct look_module *registered_module(const void *image)
{
	struct look_module *m;
	SLIST_FOREACH(m, &registered, link)
		if (m->registered_as == image)
			return m;
	m = new_module(image, FATBIN_UNKNOWN_SIZE);
	if (m) {
		m->registered_as = image;
		SLIST_INSERT_HEAD(&registered, m, link);
	}
	return m;
}

int trz_lookalike_variable(const void *image, const char *name, uint64_t *address, size_t *size)
{
	cuda_addr found = 0;
	pthread_mutex_lock(&code_lock);
	struct look_module *m = registered_module(image);
	pthread_mutex_unlock(&code_lock);
	int result = m ? cuModuleGetGlobal_v2(&found, size, m, name) : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	*address = found;
	return result;
}

void *trz_lookalike_function(const void *image, const char *name)
{
	pthread_mutex_lock(&code_lock);
	struct look_module *m = registered_module(image);
	struct look_function *f = m ? new_function(m, name) : NULL;
	pthread_mutex_unlock(&code_lock);
	return f;
}

cuda_result cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
	return cuModuleGetFunction(kernel, library, name);
}

cuda_result cuModuleGetFunctionCount(unsigned *count, void *module)
{
	struct look_module *m = module;
	struct fatbin_image image;
	LOOK_ENTER(cuModuleGetFunctionCount);
	LOOK_NEED(count, INVALID_VALUE);
	LOOK_NEED(is_module(m), INVALID_HANDLE);
	LOOK_NEED(fatbin_of(m) && fatbin_image(m->fatbin, &image) == TRZ_OK, INVALID_IMAGE);
	*count = (unsigned)image.kernel_count;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuLibraryGetKernelCount(unsigned *count, void *library)
{
	return cuModuleGetFunctionCount(count, library);
}

/* The first `room` functions. */
cuda_result cuModuleEnumerateFunctions(void **functions, unsigned room, void *module)
{
	struct look_module *m = module;
	struct fatbin_image image;
	LOOK_ENTER(cuModuleEnumerateFunctions);
	LOOK_NEED(functions, INVALID_VALUE);
	LOOK_NEED(is_module(m), INVALID_HANDLE);
	LOOK_NEED(fatbin_of(m) && fatbin_image(m->fatbin, &image) == TRZ_OK, INVALID_IMAGE);
	cuda_result result = TRZ_CUDA_SUCCESS;
	for (size_t i = 0; i < room && i < image.kernel_count && result == TRZ_CUDA_SUCCESS; i++)
		result = cuModuleGetFunction(&functions[i], module, image.kernels[i].name);
	return result;
}

cuda_result cuLibraryEnumerateKernels(void **kernels, unsigned room, void *library)
{
	return cuModuleEnumerateFunctions(kernels, room, library);
}

cuda_result cuKernelGetFunction(void **function, void *kernel)
{
	LOOK_ENTER(cuKernelGetFunction);
	LOOK_NEED(function && kernel, INVALID_VALUE);
	*function = kernel;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuKernelGetLibrary(void **library, void *kernel)
{
	LOOK_ENTER(cuKernelGetLibrary);
	LOOK_NEED(library && kernel, INVALID_VALUE);
	*library = ((struct look_function *)kernel)->module;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuFuncGetModule(void **module, void *function)
{
	LOOK_ENTER(cuFuncGetModule);
	LOOK_NEED(module && function, INVALID_VALUE);
	*module = ((struct look_function *)function)->module;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuFuncGetName(const char **name, void *function)
{
	LOOK_ENTER(cuFuncGetName);
	LOOK_NEED(name && function, INVALID_VALUE);
	*name = ((struct look_function *)function)->name;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuKernelGetName(const char **name, void *kernel)
{
	return cuFuncGetName(name, kernel);
}

cuda_result cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size)
{
	LOOK_ENTER(cuFuncGetParamInfo);
	LOOK_NEED(function && offset, INVALID_VALUE);
	const struct fatbin_kernel *k = kernel_of(function);
	LOOK_NEED(k && !k->no_params && index < k->params.count, INVALID_VALUE);
	*offset = k->params.list[index].offset;
	if (size)
		*size = k->params.list[index].size;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuFuncGetParamCount(void *function, size_t *count)
{
	LOOK_ENTER(cuFuncGetParamCount);
	LOOK_NEED(function && count, INVALID_VALUE);
	const struct fatbin_kernel *k = kernel_of(function);
	LOOK_NEED(k && !k->no_params, INVALID_VALUE);
	*count = k->params.count;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuKernelGetParamCount(void *kernel, size_t *count)
{
	return cuFuncGetParamCount(kernel, count);
}

cuda_result cuKernelGetParamInfo(void *kernel, size_t index, size_t *offset, size_t *size)
{
	return cuFuncGetParamInfo(kernel, index, offset, size);
}

cuda_result cuFuncLoad(void *function)
{
	LOOK_ENTER(cuFuncLoad);
	(void)function;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuFuncIsLoaded(int *state, void *function)
{
	LOOK_ENTER(cuFuncIsLoaded);
	LOOK_NEED(state && function, INVALID_VALUE);
	(void)function;
	*state = 1;
	return TRZ_CUDA_SUCCESS;
}

/* ---- attributes ------------------------------------------------------------ */

static int max_threads(struct look_function *f)
{
	const struct fatbin_kernel *k = kernel_of(f);
	return k && k->max_threads ? (int)k->max_threads : 1024;
}

/* The architecture that the function's code was compiled for: libraries choose their launches by it. PTX is compiled
 * for the device when it is loaded. */
static int code_architecture(struct look_function *f, bool compiled)
{
	struct fatbin_image image = {0};
	const struct fatbin_kernel *k = kernel_of(f);
	bool known = k && fatbin_image(f->module->fatbin, &image) == TRZ_OK && image.sm && !(image.ptx && compiled);
	return (int)(known ? image.sm : architecture());
}

/* How much shared memory of `all` a block's own leaves. */
static uint64_t dynamic_shared(struct look_function *f, uint64_t all)
{
	const struct fatbin_kernel *k = kernel_of(f);
	return all - min_u64(k ? k->shared_bytes : 0, all);
}

cuda_result cuFuncGetAttribute(int *value, int attribute, void *function)
{
	enum { SHARED_SIZE = 1, CONSTANT_SIZE = 2, LOCAL_SIZE = 3, TYPICAL_REGISTERS = 32 };
	struct look_function *f = function;
	LOOK_ENTER(cuFuncGetAttribute);
	LOOK_NEED(f, INVALID_HANDLE);
	LOOK_NEED(value && attribute >= 0 && attribute < TRZ_CU_FUNC_ATTRIBUTE_MAX, INVALID_VALUE);
	const struct fatbin_kernel *k = kernel_of(f);
	switch (attribute) {
	case TRZ_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = max_threads(f);
		break;
	case SHARED_SIZE:
		*value = k ? (int)k->shared_bytes : 0;
		break;
	case CONSTANT_SIZE:
		*value = k ? (int)k->constant_bytes : 0;
		break;
	case LOCAL_SIZE:
		*value = k ? (int)k->local_bytes : 0;
		break;
	case TRZ_CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = k && k->registers ? (int)k->registers : TYPICAL_REGISTERS;
		break;
	case TRZ_CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case TRZ_CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = code_architecture(f, attribute == TRZ_CU_FUNC_ATTRIBUTE_BINARY_VERSION);
		break;
	case TRZ_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = f->attributes[attribute] ? f->attributes[attribute] : (int)dynamic_shared(f, KIB(48));
		break;
	default:
		*value = f->attributes[attribute];
	}
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuFuncSetAttribute(void *function, int attribute, int value)
{
	enum { CARVEOUT = 9, MUST_HAVE_CLUSTER = 10 };
	struct look_function *f = function;
	LOOK_ENTER(cuFuncSetAttribute);
	LOOK_NEED(f, INVALID_HANDLE);
	LOOK_NEED(attribute >= TRZ_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && attribute != MUST_HAVE_CLUSTER &&
	          attribute < TRZ_CU_FUNC_ATTRIBUTE_MAX, INVALID_VALUE);
	int all = trz_lookalike_attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	uint64_t most = dynamic_shared(f, (uint64_t)all);
	bool shared = attribute == TRZ_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
	LOOK_NEED(!shared || (value >= 0 && (uint64_t)value <= most), INVALID_VALUE);
	LOOK_NEED(attribute != CARVEOUT || (value >= -1 && value <= 100), INVALID_VALUE);
	f->attributes[attribute] = value;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuFuncSetCacheConfig(void *function, int config)
{
	LOOK_ENTER(cuFuncSetCacheConfig);
	(void)function, (void)config;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuKernelGetAttribute(int *value, int attribute, void *kernel, cuda_device device)
{
	(void)device;
	return cuFuncGetAttribute(value, attribute, kernel);
}

cuda_result cuKernelSetAttribute(int attribute, int value, void *kernel, cuda_device device)
{
	(void)device;
	return cuFuncSetAttribute(kernel, attribute, value);
}

cuda_result cuKernelSetCacheConfig(void *kernel, int config, cuda_device device)
{
	(void)device;
	return cuFuncSetCacheConfig(kernel, config);
}

/* ---- occupancy ------------------------------------------------------------ */

/* As many as a multiprocessor's registers, threads, shared memory and slots allow. */
cuda_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int block, size_t shared)
{
	struct look_function *f = function;
	LOOK_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
	LOOK_NEED(blocks && f && block > 0, INVALID_VALUE);
	const struct sim_profile *p = look.profile;
	const struct fatbin_kernel *k = kernel_of(f);
	uint64_t registers = align_up(k && k->registers ? k->registers : 32, 8), warps = ((uint64_t)block + 31) / 32;
	uint64_t most = min_u64(p->threads / (warps * 32), p->blocks);
	most = min_u64(most, 65536 / (registers * warps * 32));
	shared += k ? k->shared_bytes : 0;
	if (shared)
		most = min_u64(most, p->shared_bytes / align_up(shared + (p->compute_major >= 8 ? KIB(1) : 0), 128));
	*blocks = block > max_threads(f) ? 0 : (int)most;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, void *function, int block, size_t shared,
                                                                 unsigned flags)
{
	(void)flags;
	return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block, shared);
}

cuda_result cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *function, size_t (*shared_of)(int),
                                             size_t shared, int limit)
{
	struct look_function *f = function;
	LOOK_ENTER(cuOccupancyMaxPotentialBlockSize);
	LOOK_NEED(grid && block && function, INVALID_VALUE);
	int best = 0, most = limit > 0 && limit < max_threads(f) ? limit : max_threads(f);
	*block = most;
	*grid = (int)look.profile->sms;
	for (int size = most; size >= 32; size -= 32) {
		int blocks = 0;
		cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, size, shared_of ? shared_of(size) : shared);
		if (blocks * size <= best)
			continue;
		best = blocks * size;
		*block = size;
		*grid = blocks * (int)look.profile->sms;
	}
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, void *function, size_t (*shared_of)(int),
                                                      size_t shared, int limit, unsigned flags)
{
	LOOK_NEED(flags <= 1, INVALID_VALUE);
	return cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of, shared, limit);
}

cuda_result cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, void *function, int blocks, int block)
{
	LOOK_ENTER(cuOccupancyAvailableDynamicSMemPerBlock);
	(void)function, (void)block;
	LOOK_NEED(bytes && blocks > 0, INVALID_VALUE);
	*bytes = min_u64(look.profile->shared_bytes / (unsigned)blocks, look.profile->shared_bytes - KIB(1));
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuOccupancyMaxActiveClusters(int *clusters, void *function, const struct cuda_launch *config)
{
	LOOK_ENTER(cuOccupancyMaxActiveClusters);
	LOOK_NEED(clusters, INVALID_VALUE);
	(void)function, (void)config;
	*clusters = look.profile->compute_major >= 9 ? (int)look.profile->sms / 2 : 0;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuOccupancyMaxPotentialClusterSize(int *size, void *function, const struct cuda_launch *config)
{
	LOOK_ENTER(cuOccupancyMaxPotentialClusterSize);
	LOOK_NEED(size, INVALID_VALUE);
	(void)function, (void)config;
	*size = look.profile->compute_major >= 9 ? 8 : 1;
	return TRZ_CUDA_SUCCESS;
}

/* ---- launches ------------------------------------------------------------ */

/* The 8-byte words of a launch's parameters, arguments first. In what is passed by value the host leaves fields unset
 * that the kernel will not read (the tail of a list of tensors, the second output of a reduction): they hold whatever
 * lay on its stack, often addresses of earlier calls. So a word counts as an argument only if its parameter is nothing
 * but device addresses, a pointer or the few that an operation has; any other word may be one. */
enum { MOST_WORDS = 4096, MOST_OPERANDS = 6 };

struct gathered {
	struct look_launch launch;
	size_t known, count;
	uint64_t *word;            /* [MOST_WORDS] */
};

static void add_word(struct gathered *g, uint64_t word, bool known)
{
	if (g->count == MOST_WORDS)
		return;
	g->word[g->count++] = word;
	if (known) {
		g->word[g->count - 1] = g->word[g->known];
		g->word[g->known++] = word;
	}
}

static uint64_t word_at(const char *bytes, uint32_t at)
{
	uint64_t word;
	memcpy(&word, bytes + at, sizeof word);
	return word;
}

/* Whether a parameter consists only of addresses, and always has. */
static bool is_pointers(struct look_function *f, uint32_t index, const struct kernel_param *p, const char *value)
{
	uint64_t bit = 1ull << index % 64;
	if (p->size == 8)
		return true;
	bool all = p->size % 8 == 0 && p->offset % 8 == 0 && p->size / 8 <= MOST_OPERANDS;
	for (uint32_t at = 0; all && at < p->size; at += 8)
		all = sim_is_device(look.sim, word_at(value, at));
	if (!all)
		__atomic_fetch_or(&f->mixed, bit, __ATOMIC_RELAXED);
	return all && !(__atomic_load_n(&f->mixed, __ATOMIC_RELAXED) & bit);
}

static void note_param(struct look_launch *l, const struct kernel_param *p, const char *value, bool known)
{
	uint64_t word = 0;
	bool single = p->size == 4 || p->size == 8;
	if (single)
		memcpy(&word, value, p->size);
	if (single && !sim_is_device(look.sim, word)) {
		look_parts_add_number(l, word);
		return;
	}
	for (uint32_t at = 0; known && at < p->size; at += 8)
		look_parts_add_address(l, word_at(value, at));
}

static void gather_param(struct look_function *f, uint32_t index, const char *value, struct gathered *g)
{
	const struct kernel_param *p = &f->kernel->params.list[index];
	bool known = is_pointers(f, index, p, value);
	note_param(&g->launch, p, value, known);
	/* Words are aligned in the buffer, which begins aligned. */
	for (uint32_t at = (uint32_t)(align_up(p->offset, 8) - p->offset); at + 8 <= p->size; at += 8)
		add_word(g, word_at(value, at), known);
}

/* Finds parameters passed as one buffer. `extra`: pairs of key and value, ended by 0; 1 is the buffer, 2 its size. */
static const char *find_buffer(void **extra, size_t *size)
{
	const char *buffer = NULL;
	*size = 0;
	for (size_t i = 0; extra && extra[i]; i += 2) {
		if ((uintptr_t)extra[i] == 1)
			buffer = extra[i + 1];
		else if ((uintptr_t)extra[i] == 2)
			*size = *(const size_t *)extra[i + 1];
	}
	return buffer;
}

static void gather_words(struct look_function *f, void **params, void **extra, struct gathered *g)
{
	size_t size;
	const char *buffer = params ? NULL : find_buffer(extra, &size);
	const struct fatbin_kernel *k = kernel_of(f);
	g->known = g->count = 0;
	if (k && !k->no_params) {
		for (uint32_t i = 0; i < k->params.count; i++) {
			const struct kernel_param *p = &k->params.list[i];
			if (params)
				gather_param(f, i, params[i], g);
			else if (buffer && (size_t)p->offset + p->size <= size)
				gather_param(f, i, buffer + p->offset, g);
		}
		return;
	}
	for (size_t at = 0; buffer && at + 8 <= size; at += 8)
		add_word(g, word_at(buffer, (uint32_t)at), false);
}

#define MOST_NS 4e18  /* far below 2^63 */

static trz_status enqueue_sleep(const struct cuda_kernel_node *k, trz_context context, void *stream)
{
	int64_t cycles;
	memcpy(&cycles, k->params[0], sizeof cycles);
	double ns = cycles > 0 ? (double)cycles * 1000 / look.profile->clock_mhz : 0;
	__atomic_fetch_add(&look_live.kernels, 1, __ATOMIC_RELAXED);
	look_sleeps();
	return sim_sleep(look.sim, context, stream, look.kernel_ns + (uint64_t)(ns < MOST_NS ? ns : MOST_NS));
}

static trz_status enqueue(const struct cuda_kernel_node *k, trz_context context, void *stream)
{
	struct look_function *f = k->function;
	if (f->sleeps && k->params)
		return enqueue_sleep(k, context, stream);
	struct gathered g = {.word = malloc(MOST_WORDS * sizeof *g.word)};
	if (!g.word)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for a launch of %s", f->name);
	look_parts_begin(&g.launch, k, stream);
	gather_words(f, k->params, k->extra, &g);
	__atomic_fetch_add(&look_live.kernels, 1, __ATOMIC_RELAXED);
	const struct sim_words words = {g.word, g.known, g.count, look_parts_note(&f->parts, &g.launch)};
	trz_status status = sim_touch(look.sim, context, stream, words, f->name, look.kernel_ns);
	free(g.word);
	return status;
}

static cuda_result launch(const struct cuda_kernel_node *k, void *stream)
{
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	LOOK_NEED(k->function, INVALID_HANDLE);
	look_note_work(context, stream);
	return look_enqueued(enqueue(k, context, stream));
}

int trz_lookalike_shape_fits(const unsigned grid[3], const unsigned block[3])
{
	enum { MOST_THREADS = 1024, MOST_DEEP = 64, MOST_BLOCKS = 65535 };
	bool some = grid[0] && grid[1] && grid[2] && block[0] && block[1] && block[2];
	bool grid_fits = grid[0] <= INT32_MAX && grid[1] <= MOST_BLOCKS && grid[2] <= MOST_BLOCKS;
	bool block_fits = block[0] <= MOST_THREADS && block[1] <= MOST_THREADS && block[2] <= MOST_DEEP;
	return some && grid_fits && block_fits && block[0] * block[1] * block[2] <= MOST_THREADS;
}

/* Whether a kernel can be launched with this grid, so many threads a block and `shared` bytes beyond its own. */
static cuda_result check_launch(const struct cuda_kernel_node *k)
{
	struct look_function *f = k->function;
	const unsigned *block = k->block;
	unsigned shared = k->shared_bytes;
	LOOK_NEED(f && !f->module->unloaded, INVALID_HANDLE);
	LOOK_NEED(trz_lookalike_shape_fits(k->grid, block), INVALID_VALUE);
	LOOK_NEED((int)(block[0] * block[1] * block[2]) <= max_threads(f), LAUNCH_OUT_OF_RESOURCES);
	const struct fatbin_kernel *code = kernel_of(f);
	uint64_t own = code ? code->shared_bytes : 0;
	int allowed = f->attributes[TRZ_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
	LOOK_NEED(own + shared <= KIB(48) || shared <= (unsigned)allowed, INVALID_VALUE);
	return TRZ_CUDA_SUCCESS;
}

/* Copies each parameter by itself, behind the pointers to them. It cannot copy parameters that the code does not
 * describe. */
static cuda_result keep_params(const struct fatbin_kernel *code, struct cuda_kernel_node *k, void **kept)
{
	if (!code || code->no_params) {
		k->params = NULL;
		return TRZ_CUDA_SUCCESS;
	}
	size_t count = code->params.count, bytes = (count + 1) * sizeof(void *);
	for (size_t i = 0; i < count; i++)
		bytes += align_up(code->params.list[i].size, 16);
	void **own = malloc(bytes);
	LOOK_NEED(own, OUT_OF_MEMORY);
	char *value = (char *)(own + count + 1);
	for (size_t i = 0; i < count; i++) {
		own[i] = memcpy(value, k->params[i], code->params.list[i].size);
		value += align_up(code->params.list[i].size, 16);
	}
	own[count] = NULL;
	*kept = k->params = own;
	return TRZ_CUDA_SUCCESS;
}

static cuda_result keep_buffer(struct cuda_kernel_node *k, void **kept)
{
	enum { WORDS = 6 };
	size_t size;
	const char *buffer = find_buffer(k->extra, &size);
	void **own = malloc(WORDS * sizeof(void *) + size);
	LOOK_NEED(own, OUT_OF_MEMORY);
	*kept = k->extra = own;
	own[0] = (void *)1;
	own[1] = own + WORDS;
	own[2] = (void *)2;
	own[3] = &own[5];
	own[4] = NULL;
	memcpy(&own[5], &size, sizeof size);
	if (buffer)
		memcpy(own + WORDS, buffer, size);
	return TRZ_CUDA_SUCCESS;
}

cuda_result look_kernel_keep(struct cuda_kernel_node *k, void **kept)
{
	LOOK_NEED(k->function && !(k->params && k->extra), INVALID_VALUE);
	cuda_result result = check_launch(k);
	const struct fatbin_kernel *code = result == TRZ_CUDA_SUCCESS ? kernel_of(k->function) : NULL;
	LOOK_NEED(k->params || k->extra || !code || code->no_params || code->params.count == 0, INVALID_VALUE);
	if (result != TRZ_CUDA_SUCCESS || (!k->params && !k->extra))
		return result;
	return k->params ? keep_params(code, k, kept) : keep_buffer(k, kept);
}

trz_status look_kernel_enqueue(const struct cuda_kernel_node *k, trz_context context, void *stream)
{
	return enqueue(k, context, stream);
}

cuda_result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared, void *stream, void **params, void **extra)
{
	LOOK_ENTER(cuLaunchKernel);
	const struct cuda_kernel_node k = {function, {gx, gy, gz}, {bx, by, bz}, shared, params, extra, NULL, NULL};
	cuda_result result = check_launch(&k);
	return result == TRZ_CUDA_SUCCESS ? launch(&k, stream) : result;
}

cuda_result cuLaunchKernelEx(const struct cuda_launch *config, void *function, void **params, void **extra)
{
	LOOK_ENTER(cuLaunchKernelEx);
	LOOK_NEED(config, INVALID_VALUE);
	const struct cuda_kernel_node k = {
		.function = function,
		.grid = {config->grid_x, config->grid_y, config->grid_z},
		.block = {config->block_x, config->block_y, config->block_z},
		.shared_bytes = config->shared_bytes,
		.params = params,
		.extra = extra,
	};
	cuda_result result = check_launch(&k);
	return result == TRZ_CUDA_SUCCESS ? launch(&k, config->stream) : result;
}

cuda_result cuLaunchCooperativeKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                      unsigned bz, unsigned shared, void *stream, void **params)
{
	int resident = 0;
	LOOK_ENTER(cuLaunchCooperativeKernel);
	const struct cuda_kernel_node k = {function, {gx, gy, gz}, {bx, by, bz}, shared, params, NULL, NULL, NULL};
	cuda_result result = check_launch(&k);
	if (result == TRZ_CUDA_SUCCESS)
		result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, function, (int)(bx * by * bz), shared);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	LOOK_NEED((uint64_t)gx * gy * gz <= (uint64_t)resident * look.profile->sms, COOPERATIVE_LAUNCH_TOO_LARGE);
	return launch(&k, stream);
}

/* ---- tensor maps ------------------------------------------------------------ */

/* A tensor map is 128 bytes that nothing here reads, except that the check at a launch finds the address in them. */
static cuda_result encode(void *map, void *address)
{
	enum { MAP_BYTES = 128 };
	LOOK_NEED(map && (uintptr_t)address % 16 == 0, INVALID_VALUE);
	memset(map, 0, MAP_BYTES);
	memcpy(map, &address, sizeof address);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *sizes,
                                   const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                                   int swizzle, int l2, int fill)
{
	LOOK_ENTER(cuTensorMapEncodeTiled);
	(void)type, (void)rank, (void)sizes, (void)strides, (void)box, (void)steps;
	(void)interleave, (void)swizzle, (void)l2, (void)fill;
	return encode(map, address);
}

cuda_result cuTensorMapEncodeIm2col(void *map, int type, uint32_t rank, void *address, const uint64_t *sizes,
                                    const uint64_t *strides, const int *lower, const int *upper, uint32_t channels,
                                    uint32_t pixels, const uint32_t *steps, int interleave, int swizzle, int l2,
                                    int fill)
{
	LOOK_ENTER(cuTensorMapEncodeIm2col);
	(void)type, (void)rank, (void)sizes, (void)strides, (void)lower, (void)upper, (void)channels, (void)pixels;
	(void)steps, (void)interleave, (void)swizzle, (void)l2, (void)fill;
	return encode(map, address);
}

cuda_result cuTensorMapReplaceAddress(void *map, void *address)
{
	LOOK_ENTER(cuTensorMapReplaceAddress);
	return encode(map, address);
}
