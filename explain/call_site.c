/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells frames apart by the names that PyTorch's Python and C++ give them, and other libraries of arrays their folders.
 */
#include "call_site.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "runtime_name.h"

enum { LINES_SHOWN = 4 };

static bool has(const char *text, const char *part)
{
	return strstr(text, part) != NULL;
}

static bool ends(const char *text, const char *end)
{
	size_t a = strlen(text), b = strlen(end);
	return a >= b && strcmp(text + a - b, end) == 0;
}

/* Windows separates folders by the other slash. */
static bool is_slash(char c)
{
	return c == '/' || c == '\\';
}

static bool path_begins(const char *path, const char *with)
{
	while (*with && (*path == *with || (is_slash(*path) && is_slash(*with)))) {
		path++;
		with++;
	}
	return !*with;
}

/* Whether the frame's path has such a part. */
static bool lies_in(const struct call_frame *f, const char *part)
{
	for (const char *at = f->file; *at; at++)
		if (path_begins(at, part))
			return true;
	return false;
}

static bool lies_in_any(const struct call_frame *f, const char *const *parts, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (lies_in(f, parts[i]))
			return true;
	return false;
}

static bool is_python(const struct call_frame *f)
{
	return ends(f->file, ".py") || strncmp(f->file, "<ipython", 8) == 0 || strncmp(f->file, "Cell In[", 8) == 0 ||
	       strcmp(f->file, "<stdin>") == 0 || strcmp(f->file, "<string>") == 0;
}

/* The packages of PyTorch and terrazzo, installed or built in place. A program's own folder may have their name. */
static bool is_torch(const struct call_frame *f)
{
	static const char *const parts[] = {
		"packages/torch/", "packages/terrazzo/", "/pytorch/torch/", "/terrazzo/torch/", "torch/nn/", "torch/optim/",
		"torch/autograd/", "torch/utils/", "torch/cuda/", "torch/distributed/", "torch/_",
	};
	return lies_in_any(f, parts, sizeof parts / sizeof parts[0]) || path_begins(f->file, "torch/");
}

/* What stands in PyTorch's place in other programs of Python. */
static bool is_arrays(const struct call_frame *f)
{
	static const char *const parts[] = {
		"packages/cupy/", "packages/cupyx/", "packages/numba/", "packages/numba_cuda/", "packages/pycuda/",
		"packages/cuda/", "packages/rmm/", "packages/cudf/", "packages/jax/", "packages/jaxlib/",
		"packages/tensorflow/",
	};
	return lies_in_any(f, parts, sizeof parts / sizeof parts[0]);
}

/* C:\Python311\Lib\runpy.py, C:\Users\me\miniconda3\envs\lab\lib\runpy.py */
static bool is_windows_library(const struct call_frame *f)
{
	const char *lib = strcasestr(f->file, "\\lib\\"), *folder = lib;
	while (folder && folder > f->file && !is_slash(folder[-1]))
		folder--;
	return lib && (strncasecmp(folder, "python", 6) == 0 || (lib - folder >= 6 && path_begins(lib - 6, "conda3")) ||
	               (folder - f->file >= 5 && path_begins(folder - 5, "envs/")));
}

/* Python's own library lies beside its packages. */
static bool is_library(const struct call_frame *f)
{
	return (lies_in(f, "/lib/python3") || is_windows_library(f)) && !lies_in(f, "-packages/");
}

static bool is_program(const struct call_frame *f)
{
	return is_python(f) && !is_torch(f) && !is_arrays(f) && !is_library(f);
}

/* Every operation goes through these in a program that has its own tensor type or mode. */
static bool is_interceptor(const struct call_frame *f)
{
	return strcmp(f->name, "__torch_function__") == 0 || strcmp(f->name, "__torch_dispatch__") == 0;
}

static bool is_place(const struct call_frame *f)
{
	return is_program(f) && !is_interceptor(f);
}

/* The allocator, and the shim that PyTorch calls it through. */
static bool is_own(const struct call_frame *f)
{
	return lies_in(f, "libterrazzo") || lies_in(f, "terrazzo/shim-");
}

/* Where the system begins a program or a thread, in whichever file. */
static bool is_start(const struct call_frame *f)
{
	static const char *const names[] = { "execute_native_thread_routine", "start_thread", "clone", "clone3",
	                                     "__libc_start_call_main", "__libc_start_main_impl", "_start" };
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(f->name, names[i]) == 0)
			return true;
	return false;
}

/* Whether a name is of C++ with arguments, not main.(*Pool).Take of Go. Operators are left as they are. */
static bool has_arguments(const char *name)
{
	const char *end = strrchr(name, ')');
	return strchr(name, '(') && !(end && end[1] == '.') && !has(name, "operator");
}

/* "mem::Pool::take+0x1f" of "float* mem::Pool::take<float>(unsigned long)+0x1f". */
static void function_text(const char *name, char *text, size_t room)
{
	static const char unnamed[] = "(anonymous namespace)::";
	size_t used = 0;
	int depth = 0;
	bool shortens = has_arguments(name);
	for (const char *p = name; *p && used + 1 < room; p++) {
		if (shortens && !depth && strncmp(p, unnamed, sizeof unnamed - 1) == 0)
			p += sizeof unnamed - 2;
		else if (shortens && strchr("<{(", *p))
			depth++;
		else if (shortens && strchr(">})", *p))
			depth -= depth > 0;
		else if (shortens && !depth && *p == ' ' && strchr(p, '('))
			used = 0;  /* what came before is the result's type */
		else if (!depth)
			text[used++] = *p;
	}
	text[used] = '\0';
}

/* CUDA's runtime, which may be linked into the program, and its driver. */
static bool is_cuda(const struct call_frame *f)
{
	return lies_in(f, "libcuda") || (!is_python(f) && is_runtime_name(f->name));
}

static bool is_own_or_cuda(const struct call_frame *f)
{
	return is_own(f) || is_cuda(f);
}

/* The last two parts of a path: they tell files of one name apart. */
static const char *short_file(const char *file)
{
	int slashes = 0;
	for (const char *p = file + strlen(file); p > file; p--)
		if (is_slash(p[-1]) && ++slashes == 2)
			return p;
	return file;
}

/* "_PyEval_EvalFrame", "Py_RunMain" */
static bool is_interpreter_name(const char *name)
{
	name += *name == '_';
	return strncmp(name, "Py", 2) == 0 && strchr(name, '_') && !has(name, "::");
}

/* Python's own C files, where it was built with their names: "Objects/methodobject.c", "internal/pycore_ceval.h". */
static bool is_interpreter_source(const struct call_frame *f)
{
	static const char *const folders[] = { "Objects/", "Python/", "Modules/" };
	const char *file = short_file(f->file);
	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
		if (path_begins(file, folders[i]))
			return ends(file, ".c");
	return ends(file, ".h") && (path_begins(file, "internal/pycore_") || is_interpreter_name(f->name));
}

/* Python itself, and the parts of its library that are compiled; not packages that are: "python3.11", "libpython3.so",
 * but not "python_variable_methods.cpp". */
static bool is_interpreter(const struct call_frame *f)
{
	if (is_interpreter_source(f))
		return true;
	const char *slash = strrchr(f->file, '/'), *name = slash ? slash + 1 : f->file;
	bool program = strncmp(name, "python", 6) == 0 && strspn(name + 6, "0123456789.") == strlen(name + 6);
	return program || strncmp(name, "libpython", 9) == 0 || lies_in(f, "/lib-dynload/");
}

static bool is_nameless(const char *text)
{
	return !*text || strcmp(text, "??") == 0;
}

bool call_is_of_interpreter(const struct call_frame *f)
{
	return is_interpreter(f) || (is_nameless(f->file) && (is_nameless(f->name) || is_interpreter_name(f->name)));
}

static bool is_native_torch(const struct call_frame *f)
{
	return lies_in(f, "libtorch") || lies_in(f, "libc10") || is_torch(f) || strncmp(f->name, "torch::", 7) == 0 ||
	       has(f->name, "c10::") || strncmp(f->name, "at::", 4) == 0;
}

/* A frame of a compiled program: neither PyTorch's, Python's, CUDA's, the allocator's nor the system's. */
static bool is_native_program(const struct call_frame *f)
{
	static const char *const system[] = { "libc.so", "libstdc++", "libpthread", "ld-linux" };
	for (size_t i = 0; i < sizeof system / sizeof system[0]; i++)
		if (lies_in(f, system[i]))
			return false;
	return !is_nameless(f->file) && !is_start(f) && !is_cuda(f) && !is_interpreter(f) &&
	       !is_native_torch(f) && !is_own(f);
}

/* An operation that autograd runs on a thread of its own, without Python: "torch::autograd::generated::MulBackward0::
 * apply", but not the function that it calls in newer versions. */
static bool is_operation(const struct call_frame *f)
{
	if (has(f->name, "_apply_functional"))
		return false;
	return has(f->name, "Backward") || has(f->name, "ProcessGroup") || has(f->name, "AccumulateGrad");
}

/* Autograd's engine between operations: it adds gradients up, and sums them over what was broadcast. */
static bool is_autograd(const struct call_frame *f)
{
	return strncmp(f->name, "torch::autograd::", 17) == 0 && !has(f->name, "VariableType");
}

bool call_is_operation(const struct call_frame *f)
{
	return !is_python(f) && is_native_torch(f);
}

bool call_is_native(const struct call_frame *f)
{
	return !f->line && !is_python(f);
}

int call_site_level(const struct call_frame *frames, size_t count)
{
	static bool (*const wanted[])(const struct call_frame *f) = { is_place, is_program, is_operation, is_native_program,
	                                                              is_python, is_autograd };
	for (size_t kind = 0; kind < sizeof wanted / sizeof wanted[0]; kind++)
		for (size_t i = 0; i < count; i++)
			if (wanted[kind](&frames[i]))
				return (int)i;
	static bool (*const unwanted[])(const struct call_frame *f) = { is_own_or_cuda, is_own };
	for (size_t kind = 0; kind < sizeof unwanted / sizeof unwanted[0]; kind++)
		for (size_t i = 0; i < count; i++)
			if (!unwanted[kind](&frames[i]))
				return (int)i;
	return count ? 0 : -1;
}

/* The last two names of "torch::autograd::generated::MulBackward0::apply(std::vector<...>)", without arguments. */
static int operation_text(const char *name, char *text, size_t room)
{
	size_t size = strcspn(name, "(<");
	const char *begin = name + size;
	for (int parts = 0; begin > name; begin--)
		if (begin - name >= 2 && begin[-1] == ':' && begin[-2] == ':' && ++parts == 2)
			break;
	return snprintf(text, room, "%.*s", (int)(name + size - begin < 120 ? name + size - begin : 120), begin);
}

static int frame_text(const struct call_frame *f, char *text, size_t room)
{
	char function[64];
	const char *name = f->name;
	if (!is_python(f) && is_native_torch(f) && has(name, "::"))
		return operation_text(name, text, room);
	if (!is_python(f)) {
		function_text(name, function, sizeof function);
		name = function;
	}
	if (*f->file && strcmp(f->file, "??") != 0 && f->line)
		return snprintf(text, room, "%.80s:%u %.60s", short_file(f->file), f->line, name);
	return snprintf(text, room, "%.80s %.60s", short_file(f->file), name);
}

bool call_site_text(const struct call_frame *frames, size_t count, char text[CALL_SITE_BYTES])
{
	int level = call_site_level(frames, count);
	text[0] = '\0';
	if (level >= 0)
		frame_text(&frames[level], text, CALL_SITE_BYTES);
	return level >= 0;
}

void call_frame_text(const struct call_frame *f, char text[CALL_SITE_BYTES])
{
	frame_text(f, text, CALL_SITE_BYTES);
}

void call_stack_text(const struct call_frame *frames, size_t count, char *text, size_t room)
{
	size_t used = 0, shown = 0;
	int level = call_site_level(frames, count);
	text[0] = '\0';
	for (size_t i = 0; i < count && shown < LINES_SHOWN; i++) {
		char line[CALL_SITE_BYTES];
		if (!is_program(&frames[i]) && (int)i != level)
			continue;
		frame_text(&frames[i], line, sizeof line);
		int length = snprintf(text + used, room - used, "%s%s", used ? "\n" : "", line);
		if (length < 0 || (size_t)length >= room - used)
			return;
		used += (size_t)length;
		shown++;
	}
}

/* ---- models ----------------------------------------------------------------------------------------- */

bool call_is_call_of_module(const struct call_frame *f)
{
	return has(f->name, "_call_impl") && !has(f->name, "wrapped") && lies_in(f, "nn/modules/module");
}

unsigned call_modules(const struct call_frame *frames, size_t count)
{
	unsigned calls = 0;
	for (size_t i = 0; i < count; i++)
		calls += call_is_call_of_module(&frames[i]);
	return calls;
}

bool call_is_line_of_python(const struct call_frame *f)
{
	return is_python(f);
}

bool call_is_line_of_program(const struct call_frame *f)
{
	return is_program(f);
}

/* What tells a file from others: of a notebook's cell what follows the number of its run. */
static const char *file_key(const char *file)
{
	const char *cell = strstr(file, "ipython-input-");
	if (!cell)
		return file;
	cell += strlen("ipython-input-");
	size_t digits = strspn(cell, "0123456789");
	return digits && cell[digits] == '-' ? cell + digits : file;
}

bool call_is_same_line(const struct call_frame *a, const struct call_frame *b)
{
	return a->line == b->line && strcmp(a->name, b->name) == 0 && strcmp(file_key(a->file), file_key(b->file)) == 0;
}

bool call_is_of_program(const struct call_frame *frames, size_t count)
{
	int level = call_site_level(frames, count);
	return level >= 0 && is_program(&frames[level]);
}

bool call_is_of_file(const struct call_frame *frames, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (has(frames[i].file, "torch/serialization.py") || has(frames[i].file, "safetensors/torch.py"))
			return true;
	return false;
}

/* How many of the innermost levels lie within the loop that calls a model, or allocates; 0: not known. */
static size_t levels_of_loop(const struct call_frame *frames, size_t count)
{
	size_t inside = 0;
	for (size_t i = 0; i < count; i++)
		if (call_is_call_of_module(&frames[i]))
			inside = i + 1;
	while (inside < count && !is_program(&frames[inside]))
		inside++;
	return inside < count ? inside + 1 : 0;
}

bool call_is_same_loop(const struct call_frame *a, size_t count_a, const struct call_frame *b, size_t count_b)
{
	size_t levels = levels_of_loop(a, count_a);
	bool same = levels > 0 && levels == levels_of_loop(b, count_b);
	for (size_t i = 0; same && i < levels; i++)
		same = call_is_same_line(&a[i], &b[i]);
	return same;
}

bool call_begins_step(const struct call_frame *frames, size_t count)
{
	return call_is_of_program(frames, count) && call_modules(frames, count) == 0 &&
	       call_category(frames, count) == CATEGORY_UNKNOWN;
}

bool call_is_of_model(const struct call_frame *frames, size_t count)
{
	unsigned calls = call_modules(frames, count);
	const struct call_frame *called = NULL;  /* by the next frame of Python: C++'s may stand between the two */
	for (size_t i = 0; calls == 1 && i < count; i++) {
		if (call_is_call_of_module(&frames[i]))
			return called && is_program(called);
		called = is_python(&frames[i]) ? &frames[i] : called;
	}
	return calls > 1;
}

bool call_has_python(const struct call_frame *frames, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (is_python(&frames[i]))
			return true;
	return false;
}

bool call_is_in_own_loop(const struct call_frame *frames, size_t count)
{
	static const char *const files[] = { "torch/autograd/functional.py", "torch/autograd/gradcheck.py",
	                                     "torch/_functorch/", "torch/_vmap_internals.py",
	                                     "torch/distributed/pipelining/" };
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < sizeof files / sizeof files[0]; k++)
			if (has(frames[i].file, files[k]))
				return true;
	return false;
}

/* The innermost counts. */
enum call_gradients call_gradients(const struct call_frame *frames, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!has(frames[i].file, "torch/autograd/__init__"))
			continue;
		if (strcmp(frames[i].name, "backward") == 0)
			return CALL_SETS_GRADIENTS;
		if (strcmp(frames[i].name, "grad") == 0)
			return CALL_ASKS_GRADIENTS;
	}
	return CALL_NO_GRADIENTS;
}

/* ---- what for --------------------------------------------------------------------------------------- */

enum sign {
	NO_SIGN,
	SIGN_OPTIMIZER,
	SIGN_BACKWARD,
	SIGN_ACCUMULATE,           /* what becomes .grad */
	SIGN_REDUCED,              /* gradients, for all ranks */
	SIGN_SHARDED,              /* weights, as shards or gathered; gradients, if an outer frame reduces them */
	SIGN_FORWARD,
	SIGN_WEIGHTS,
	SIGN_KV_CACHE,
	SIGN_WORKSPACE
};

static bool is_optimizer(const struct call_frame *f)
{
	return lies_in(f, "torch/optim/") || lies_in(f, "/optimizers/") || lies_in(f, "bitsandbytes/optim") ||
	       lies_in(f, "/ops/adam/") || lies_in(f, "fsdp/_optim_utils.py") || has(f->name, "_init_group") ||
	       ends(f->name, ".step_optimizer");
}

/* A stack may be cut off inside the engine, so any function of it will do. */
static bool is_backward(const struct call_frame *f)
{
	return has(f->name, "_engine_run_backward") || has(f->name, "torch::autograd::generated") ||
	       has(f->name, "torch::autograd::Engine") || has(f->name, "torch::autograd::Node") ||
	       has(f->name, "torch::autograd::python::PythonEngine") ||
	       (lies_in(f, "torch/autograd/__init__") && has(f->name, "backward"));
}

static bool is_kv_cache(const struct call_frame *f)
{
	static const char *const names[] = { "kv_cache", "kvcache", "KVCache", "KeyValueCache" };
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (has(f->name, names[i]) || lies_in(f, names[i]))
			return true;
	return lies_in(f, "cache_utils") || lies_in(f, "paged_attention");
}

/* cuBLAS's workspace for a stream and a thread, made with the first product and kept. */
static bool is_workspace(const struct call_frame *f)
{
	return has(f->name, "getCurrentCUDABlasHandle") || has(f->name, "getCUDABlasLtWorkspace") ||
	       has(f->name, "CublasLtWorkspace");
}

static bool is_weights(const struct call_frame *f)
{
	bool module = lies_in(f, "nn/modules/module");
	return lies_in(f, "nn/parameter") || lies_in(f, "torch/nn/init.py") ||
	       (module && (strcmp(f->name, "convert") == 0 || strcmp(f->name, "_apply") == 0 ||
	                   strcmp(f->name, "to") == 0 || strcmp(f->name, "cuda") == 0 ||
	                   has(f->name, "load_state_dict"))) ||
	       (lies_in(f, "nn/modules/") && strcmp(f->name, "__init__") == 0) || has(f->name, "from_pretrained") ||
	       lies_in(f, "transformers/core_model_loading");  /* in threads that from_pretrained waits for */
}

/* What DistributedDataParallel itself allocates is its buckets, when it is made and, once more, in the second pass. */
static bool is_buckets(const struct call_frame *f)
{
	return lies_in(f, "torch/nn/parallel/distributed.py");
}

static bool is_fsdp(const struct call_frame *f)
{
	return lies_in(f, "torch/distributed/fsdp/");
}

static bool is_reduced(const struct call_frame *f)
{
	return is_buckets(f) || (is_fsdp(f) && (has(f->name, "reduce") || has(f->name, "grad")));
}

static enum sign sign_of(const struct call_frame *f)
{
	if (is_workspace(f))
		return SIGN_WORKSPACE;
	if (is_reduced(f))
		return SIGN_REDUCED;
	if (has(f->name, "AccumulateGrad"))
		return SIGN_ACCUMULATE;
	if (is_backward(f))
		return SIGN_BACKWARD;
	if (is_optimizer(f))
		return SIGN_OPTIMIZER;
	if (is_kv_cache(f))
		return SIGN_KV_CACHE;
	if (is_weights(f))
		return SIGN_WEIGHTS;
	if (lies_in(f, "nn/modules/module") && (ends(f->name, "_call_impl") || strcmp(f->name, "__call__") == 0))
		return SIGN_FORWARD;
	if (is_fsdp(f))
		return SIGN_SHARDED;
	return NO_SIGN;
}

/* An optimizer of PyTorch or of a package, but for the wrapper that programs' own optimizers have, too: it calls the
 * program for a closure alone. */
static bool is_caller_of_closure(const struct call_frame *f)
{
	return is_optimizer(f) && !lies_in(f, "torch/optim/optimizer.py");
}

/* The innermost sign counts, since checkpointing runs forward within backward. What a closure makes, such as a training
 * step of Lightning's, is not the optimizer's that has called it. */
enum evidence_category call_category(const struct call_frame *frames, size_t count)
{
	enum sign first = NO_SIGN;
	bool backward = false, program = false, closure = false;
	for (size_t i = 0; i < count; i++) {
		enum sign sign = sign_of(&frames[i]);
		if (sign == SIGN_ACCUMULATE)
			return CATEGORY_GRADIENTS;
		backward |= sign == SIGN_BACKWARD;
		closure |= program && is_caller_of_closure(&frames[i]);
		program |= is_program(&frames[i]) && !is_optimizer(&frames[i]);
		if (sign == SIGN_OPTIMIZER && closure)
			continue;
		bool outer = (first == SIGN_FORWARD && sign == SIGN_KV_CACHE) ||
		             (first == SIGN_SHARDED && sign == SIGN_REDUCED);
		if (first == NO_SIGN || outer)
			first = sign;
	}
	switch (first) {
	case SIGN_OPTIMIZER:
		return CATEGORY_OPTIMIZER;
	case SIGN_KV_CACHE:
		return CATEGORY_KV_CACHE;
	case SIGN_WEIGHTS:
	case SIGN_SHARDED:
		return CATEGORY_WEIGHTS;
	case SIGN_REDUCED:
		return CATEGORY_GRADIENTS;
	case SIGN_WORKSPACE:
		return CATEGORY_OTHER;
	case SIGN_FORWARD:
		return CATEGORY_ACTIVATIONS;
	default:
		return backward ? CATEGORY_GRADIENTS : CATEGORY_UNKNOWN;
	}
}

enum call_optimizer call_optimizer(const struct call_frame *frames, size_t count)
{
	if (call_category(frames, count) != CATEGORY_OPTIMIZER)
		return CALL_NO_OPTIMIZER;
	for (size_t i = 0; i < count; i++)
		if (strcmp(frames[i].name, "zero_grad") == 0)
			return CALL_OPTIMIZER_CLEARS;
	return CALL_OPTIMIZER_STEPS;
}
