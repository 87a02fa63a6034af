/* SPDX-License-Identifier: Apache-2.0
 *
 * Which frame of a call stack names its place in the program, and what it says the memory is for.
 */
#include "testing.h"

#include "call_site.h"

static const char *site(const struct call_frame *frames, size_t count)
{
	static char text[CALL_SITE_BYTES];
	assert_true(call_site_text(frames, count, text));
	return text;
}

/* Symbols in files that are known by name only, as PyTorch's C++ stacks have them. */
static void test_python_comes_before_compiled_code(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "??", .name = "torch::unwind::unwind()"},
		{.file = "memory_snapshot.cpp", .name = "torch::cuda::(anonymous namespace)::gather_with_cpp()"},
		{.file = "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", .name = "forward", .line = 134},
		{.file = "/users/me/train.py", .name = "step", .line = 31},
		{.file = "/tmp/Python-3.11.7/Python/ceval.c", .name = "_PyEval_EvalFrame", .line = 73},
		{.file = "??", .name = "_start"},
	};
	assert_string_equal(site(frames, LENGTH(frames)), "me/train.py:31 step");
}

static void test_a_program_may_lie_in_a_folder_named_torch(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "/env/lib/python3.11/site-packages/torch/nn/modules/module.py", .name = "_call_impl", .line = 9},
		{.file = "/src/terrazzo/tests/torch/fails.py", .name = "forward", .line = 45},
	};
	assert_string_equal(site(frames, LENGTH(frames)), "torch/fails.py:45 forward");
	const struct call_frame built[] = {
		{.file = "/src/pytorch/torch/functional.py", .name = "einsum", .line = 9},
		{.file = "/src/torch/model.py", .name = "forward", .line = 7},
	};
	assert_string_equal(site(built, LENGTH(built)), "torch/model.py:7 forward");
}

static void test_windows_has_the_other_slash(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "D:\\env\\Lib\\site-packages\\torch\\nn\\modules\\linear.py", .name = "forward", .line = 134},
		{.file = "D:\\env\\Lib\\site-packages\\torch\\nn\\modules\\module.py", .name = "_call_impl", .line = 9},
		{.file = "C:\\Users\\me\\miniconda3\\envs\\lab\\lib\\contextlib.py", .name = "inner", .line = 79},
		{.file = "C:\\Python311\\Lib\\functools.py", .name = "wrapper", .line = 12},
		{.file = "C:\\Users\\me\\lib\\train.py", .name = "step", .line = 31},
	};
	assert_string_equal(site(frames, LENGTH(frames)), "lib\\train.py:31 step");
	assert_int_equal(call_category(frames, LENGTH(frames)), CATEGORY_ACTIVATIONS);
	assert_int_equal(call_modules(frames, LENGTH(frames)), 1);
	const struct call_frame steps[] = {
		{.file = "D:\\env\\Lib\\site-packages\\torch\\optim\\adamw.py", .name = "step", .line = 160},
		{.file = "C:\\Users\\me\\train.py", .name = "step", .line = 31},
	};
	assert_int_equal(call_category(steps, LENGTH(steps)), CATEGORY_OPTIMIZER);
}

static void test_other_libraries_of_arrays_are_no_place_either(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "/env/lib/python3.11/site-packages/cupy/_creation/basic.py", .name = "zeros", .line = 252},
		{.file = "/env/lib/python3.11/site-packages/thinc/backends/cupy_ops.py", .name = "alloc", .line = 40},
		{.file = "/users/me/train.py", .name = "step", .line = 31},
	};
	assert_string_equal(site(frames, LENGTH(frames)), "backends/cupy_ops.py:40 alloc");
	assert_string_equal(site(frames, 1), "_creation/basic.py:252 zeros");
}

/* Of a program with a tensor type of its own, all that it computes goes through one line. */
static void test_what_intercepts_operations_is_no_place(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "/env/lib/python3.11/site-packages/torch/_tensor.py", .name = "__torch_function__", .line = 1279},
		{.file = "/users/me/tagged.py", .name = "__torch_function__", .line = 12},
		{.file = "/users/me/model.py", .name = "forward", .line = 31},
	};
	assert_string_equal(site(frames, LENGTH(frames)), "me/model.py:31 forward");
	assert_string_equal(site(frames, 2), "me/tagged.py:12 __torch_function__");
}

static void test_compiled_programs_have_sites_too(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "CUDACachingAllocator.cpp", .name = "c10::cuda::CUDACachingAllocator::Native::malloc"},
		{.file = "engine.cpp", .name = "run_layer", .line = 12},
	};
	assert_string_equal(site(frames, LENGTH(frames)), "engine.cpp:12 run_layer");
}

/* Where nothing is the program's, at least the allocator is not named. */
static void test_the_allocator_is_no_site(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "/opt/terrazzo/shim-2.15.0.so", .name = "+0x2519d"},
		{.file = "libtorch_cpu.so", .name = "at::detail::empty_generic(c10::ArrayRef<long>)"},
		{.file = "libtorch_cpu.so", .name = "at::empty(c10::ArrayRef<long>)"},
	};
	assert_string_equal(site(frames, LENGTH(frames)), "detail::empty_generic");
}

/* PyTorch 2.13, where the operation's work is not inlined. */
static void test_an_operation_is_named_by_its_node(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "RegisterCUDA_0.cpp", .name = "at::(anonymous namespace)::wrapper_CUDA_gelu_backward(x)"},
		{.file = "Functions.cpp", .name = "torch::autograd::generated::GeluBackward0_apply_functional(x)"},
		{.file = "??", .name = "torch::autograd::generated::GeluBackward0::apply(x)"},
		{.file = "??", .name = "torch::autograd::Engine::thread_main(std::shared_ptr<GraphTask> const&)"},
	};
	assert_string_equal(site(frames, LENGTH(frames)), "GeluBackward0::apply");
	assert_int_equal(call_category(frames, LENGTH(frames)), CATEGORY_GRADIENTS);
}

/* Between operations autograd's engine allocates, too, on a thread that the system began. */
static void test_sums_of_gradients_are_autograds(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "??", .name = "torch::unwind::unwind()"},
		{.file = "VariableType_2.cpp", .name = "torch::autograd::VariableType::(anonymous namespace)::add_Tensor(x)"},
		{.file = "??", .name = "torch::autograd::InputBuffer::add(unsigned long, at::Tensor&&)"},
		{.file = "??", .name = "torch::autograd::Engine::thread_main(std::shared_ptr<GraphTask> const&)"},
		{.file = "thread48.o", .name = "execute_native_thread_routine"},
		{.file = "./nptl/./nptl/pthread_create.c", .name = "start_thread", .line = 442},
		{.file = "../sysdeps/unix/sysv/linux/x86_64/clone3.S", .name = "clone3", .line = 81},
	};
	assert_string_equal(site(frames, LENGTH(frames)), "InputBuffer::add");
	assert_int_equal(call_category(frames, LENGTH(frames)), CATEGORY_GRADIENTS);
}

#define TORCH "/env/lib/python3.11/site-packages/torch/"

/* DistributedDataParallel rebuilds its buckets in a forward pass, in which its model's activations are made, too. */
static void test_buckets_are_of_gradients(void **state)
{
	(void)state;
	const struct call_frame calls[] = {
		{.file = TORCH "nn/parallel/distributed.py", .name = "_pre_forward", .line = 1533},
		{.file = TORCH "nn/parallel/distributed.py", .name = "forward", .line = 1644},
		{.file = TORCH "nn/modules/module.py", .name = "_call_impl", .line = 1784},
		{.file = "/users/me/train.py", .name = "step", .line = 31},
	};
	const struct call_frame made[] = {
		{.file = TORCH "nn/parallel/distributed.py", .name = "_ddp_init_helper", .line = 1209},
		{.file = TORCH "nn/parallel/distributed.py", .name = "__init__", .line = 860},
		{.file = "/users/me/train.py", .name = "main", .line = 8},
	};
	const struct call_frame activations[] = {
		{.file = TORCH "nn/modules/linear.py", .name = "forward", .line = 125},
		{.file = TORCH "nn/modules/module.py", .name = "_call_impl", .line = 1784},
		{.file = TORCH "nn/parallel/distributed.py", .name = "_run_ddp_forward", .line = 1474},
		{.file = TORCH "nn/parallel/distributed.py", .name = "forward", .line = 1648},
	};
	assert_int_equal(call_category(calls, LENGTH(calls)), CATEGORY_GRADIENTS);
	assert_int_equal(call_category(made, LENGTH(made)), CATEGORY_GRADIENTS);
	assert_int_equal(call_category(activations, LENGTH(activations)), CATEGORY_ACTIVATIONS);
}

static void test_fsdp_has_weights_and_gradients(void **state)
{
	(void)state;
	const struct call_frame shards[] = {
		{.file = TORCH "distributed/fsdp/_fully_shard/_fsdp_param.py", .name = "_init_sharded_param", .line = 340},
		{.file = TORCH "distributed/fsdp/_fully_shard/_fully_shard.py", .name = "fully_shard", .line = 272},
		{.file = "/users/me/train.py", .name = "main", .line = 17},
	};
	const struct call_frame gathers[] = {
		{.file = TORCH "distributed/fsdp/_flat_param.py", .name = "_alloc_padded_unsharded_flat_param", .line = 1},
		{.file = TORCH "distributed/fsdp/_runtime_utils.py", .name = "_unshard", .line = 1},
		{.file = TORCH "distributed/fsdp/fully_sharded_data_parallel.py", .name = "forward", .line = 1},
		{.file = TORCH "nn/modules/module.py", .name = "_call_impl", .line = 1784},
	};
	const struct call_frame reduces[] = {
		{.file = TORCH "distributed/fsdp/_fully_shard/_fsdp_collectives.py", .name = "allocate", .line = 59},
		{.file = TORCH "distributed/fsdp/_fully_shard/_fsdp_collectives.py", .name = "foreach_reduce", .line = 612},
		{.file = TORCH "autograd/function.py", .name = "apply", .line = 366},
	};
	const struct call_frame built[] = {
		{.file = "/src/Python-3.11.7/Objects/methodobject.c", .name = "cfunction_call", .line = 542},
		{.file = "/src/Python-3.11.7/Python/ceval.c", .name = "do_call_core", .line = 7349},
		{.file = TORCH "distributed/fsdp/_runtime_utils.py", .name = "_reduce_grad", .line = 842},
		{.file = "/src/Python-3.11.7/Objects/call.c", .name = "_PyVectorcall_Call", .line = 257},
	};
	assert_string_equal(site(built, LENGTH(built)), "fsdp/_runtime_utils.py:842 _reduce_grad");
	const struct call_frame hook[] = {
		{.file = "python_variable_methods.cpp", .name = "torch::autograd::THPVariable_new(_object*, _object*)"},
		{.file = "/src/Python-3.11.7/./Include/internal/pycore_ceval.h", .name = "_PyEval_EvalFrame", .line = 73},
		{.file = TORCH "distributed/fsdp/_runtime_utils.py", .name = "_post_backward_hook", .line = 700},
		{.file = "/src/Python-3.11.7/./Include/object.h", .name = "Py_DECREF", .line = 538},
		{.file = "python_hook.cpp", .name = "torch::autograd::(anonymous namespace)::_call_hooks(_object*)"},
	};
	assert_string_equal(site(hook, LENGTH(hook)), "fsdp/_runtime_utils.py:700 _post_backward_hook");
	assert_int_equal(call_category(shards, LENGTH(shards)), CATEGORY_WEIGHTS);
	assert_int_equal(call_category(gathers, LENGTH(gathers)), CATEGORY_WEIGHTS);
	assert_int_equal(call_category(reduces, LENGTH(reduces)), CATEGORY_GRADIENTS);
}

/* Some operations are deeper below the engine than a stack has levels. */
static void test_a_cut_stack_of_autograd_is_of_gradients(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "libtorch_cpu.so", .name = "at::native::_to_copy(at::Tensor const&)"},
		{.file = "libtorch_cpu.so", .name = "torch::autograd::generated::ToCopyBackward0::apply(std::vector)"},
	};
	assert_int_equal(call_category(frames, LENGTH(frames)), CATEGORY_GRADIENTS);
	assert_int_equal(call_category(frames, 1), CATEGORY_UNKNOWN);
}

static void test_workspaces_and_caches_are_no_activations(void **state)
{
	(void)state;
	const struct call_frame workspace[] = {
		{.file = "libtorch_cuda.so", .name = "at::cuda::getCurrentCUDABlasHandle(bool)"},
		{.file = "/env/lib/python3.11/site-packages/torch/nn/modules/module.py", .name = "_call_impl", .line = 9},
	};
	assert_int_equal(call_category(workspace, LENGTH(workspace)), CATEGORY_OTHER);
	const struct call_frame cache[] = {
		{.file = "/src/serve.py", .name = "grow_kvcache", .line = 5},
		{.file = "/env/lib/python3.11/site-packages/torch/nn/modules/module.py", .name = "_call_impl", .line = 9},
	};
	assert_int_equal(call_category(cache, LENGTH(cache)), CATEGORY_KV_CACHE);
}

/* from_pretrained of transformers waits for threads that allocate. */
static void test_weights_are_loaded_in_threads(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "/p/site-packages/transformers/core_model_loading.py", .name = "_materialize_copy", .line = 1323},
		{.file = "/p/site-packages/transformers/core_model_loading.py", .name = "_job", .line = 1362},
		{.file = "/usr/lib/python3.11/concurrent/futures/thread.py", .name = "run", .line = 58},
	};
	assert_int_equal(call_category(frames, LENGTH(frames)), CATEGORY_WEIGHTS);
}

/* Between a module's function and what has called it, stacks with C++ have frames of the interpreter. */
static void test_a_module_of_the_program_is_a_model(void **state)
{
	(void)state;
	struct call_frame frames[] = {
		{.file = "/tmp/Python-3.11.7/Objects/abstract.c", .name = "PyNumber_MatrixMultiply", .line = 1},
		{.file = "/users/me/model.py", .name = "forward", .line = 31},
		{.file = "/tmp/Python-3.11.7/Python/ceval.c", .name = "_PyEval_EvalFrame", .line = 73},
		{.file = "/p/site-packages/torch/nn/modules/module.py", .name = "_call_impl", .line = 9},
		{.file = "/users/me/train.py", .name = "step", .line = 5},
	};
	assert_true(call_is_of_model(frames, LENGTH(frames)));
	frames[1].file = "/p/site-packages/torch/nn/modules/linear.py";
	assert_false(call_is_of_model(frames, LENGTH(frames)));
}

/* backward() sets .grad, grad() returns gradients; the innermost counts. */
static void test_gradients_are_set_or_asked_for(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "/p/site-packages/torch/autograd/__init__.py", .name = "_make_grads", .line = 233},
		{.file = "/p/site-packages/torch/autograd/__init__.py", .name = "grad", .line = 480},
		{.file = "/p/site-packages/torch/autograd/functional.py", .name = "jacobian", .line = 700},
		{.file = "/p/site-packages/torch/autograd/__init__.py", .name = "backward", .line = 346},
		{.file = "/users/me/train.py", .name = "step", .line = 31},
	};
	assert_int_equal(call_gradients(frames, 2), CALL_ASKS_GRADIENTS);
	assert_int_equal(call_gradients(frames, LENGTH(frames)), CALL_ASKS_GRADIENTS);
	assert_int_equal(call_gradients(&frames[2], 3), CALL_SETS_GRADIENTS);
	assert_int_equal(call_gradients(&frames[4], 1), CALL_NO_GRADIENTS);
	assert_true(call_is_in_own_loop(frames, LENGTH(frames)));
	assert_false(call_is_in_own_loop(&frames[3], 2));
	assert_true(call_has_python(&frames[4], 1));
}

static void test_what_an_optimizer_does(void **state)
{
	(void)state;
	const struct call_frame frames[] = {
		{.file = "/p/site-packages/torch/nn/modules/module.py", .name = "_call_impl", .line = 1775},
		{.file = "/users/me/train.py", .name = "closure", .line = 12},
		{.file = "/p/site-packages/torch/optim/lbfgs.py", .name = "step", .line = 330},
		{.file = "/users/me/train.py", .name = "main", .line = 31},
	};
	const struct call_frame clears[] = {
		{.file = "/p/site-packages/torch/optim/optimizer.py", .name = "zero_grad", .line = 1000},
		{.file = "/users/me/train.py", .name = "main", .line = 29},
	};
	assert_int_equal(call_optimizer(frames, LENGTH(frames)), CALL_NO_OPTIMIZER);
	assert_int_equal(call_optimizer(&frames[2], 2), CALL_OPTIMIZER_STEPS);
	assert_int_equal(call_optimizer(&frames[3], 1), CALL_NO_OPTIMIZER);
	assert_int_equal(call_optimizer(clears, LENGTH(clears)), CALL_OPTIMIZER_CLEARS);
}

/* Lightning's training step runs within the step of an optimizer. A program's own optimizer has PyTorch's wrapper. */
static void test_a_closure_is_not_the_optimizers(void **state)
{
	(void)state;
	const struct call_frame closure[] = {
		{.file = "/p/site-packages/torch/nn/functional.py", .name = "cross_entropy", .line = 3479},
		{.file = "/users/me/model.py", .name = "training_step", .line = 12},
		{.file = "/p/site-packages/lightning/pytorch/loops/optimization/automatic.py", .name = "closure", .line = 129},
		{.file = "/p/site-packages/torch/optim/adam.py", .name = "step", .line = 226},
		{.file = "/p/site-packages/torch/optim/optimizer.py", .name = "wrapper", .line = 516},
		{.file = "/users/me/train.py", .name = "main", .line = 31},
	};
	const struct call_frame own[] = {
		{.file = "/users/me/lamb.py", .name = "step", .line = 40},
		{.file = "/p/site-packages/torch/optim/optimizer.py", .name = "wrapper", .line = 516},
		{.file = "/users/me/train.py", .name = "main", .line = 31},
	};
	assert_int_equal(call_category(closure, LENGTH(closure)), CATEGORY_UNKNOWN);
	assert_int_equal(call_category(&closure[3], 3), CATEGORY_OPTIMIZER);
	assert_int_equal(call_category(own, LENGTH(own)), CATEGORY_OPTIMIZER);
	assert_int_equal(call_optimizer(closure, LENGTH(closure)), CALL_NO_OPTIMIZER);
}

/* As preloaded programs have them: C++ names with types, the runtime in the program or beside it, a package's own
 * library. */
static void test_functions_of_cpp_are_named_without_types(void **state)
{
	(void)state;
	static const char *const names[][2] = {
		{"float* mem::Pool::take<float>(unsigned long)+0x1f", "r/app mem::Pool::take+0x1f"},
		{"(anonymous namespace)::grow(std::vector<int, std::allocator<int> >&)+0x8", "r/app grow+0x8"},
		{"std::map<int, float> make<int, float>(int)+0x10", "r/app make+0x10"},
		{"main::{lambda(int)#1}::operator()(int) const+0x4", "r/app main::{lambda(int)#1}::operator()(int) const+0x4"},
		{"Net::cache() const+0x13", "r/app Net::cache const+0x13"},
		{"main.(*Pool).Take+0x5", "r/app main.(*Pool).Take+0x5"},
		{"_Z9mangled_ifv+0x5", "r/app _Z9mangled_ifv+0x5"},
		{"std::vector<float, std::allocator<float> > cut_in_arguments(std::vector<", "r/app cut_in_arguments"},
		{"grow+0x29", "r/app grow+0x29"},
	};
	for (size_t i = 0; i < LENGTH(names); i++) {
		const struct call_frame frame = {.file = "/usr/r/app", .name = names[i][0]};
		assert_string_equal(site(&frame, 1), names[i][1]);
	}
}

static void test_the_runtime_is_no_site(void **state)
{
	(void)state;
	const struct call_frame linked[] = {
		{.file = "/usr/r/app", .name = "libcudart_static_76a125a71b5a557a55dda5b7bcab25d92df5527b+0x40"},
		{.file = "/usr/r/app", .name = "cudaMallocAsync+0x68"},
		{.file = "/usr/r/app", .name = "cudaError cudaMallocAsync<float>(float**, unsigned long, CUstream_st*)+0x8"},
		{.file = "/usr/r/app", .name = "asks+0x1a"},
	};
	const struct call_frame package[] = {
		{.file = "/cuda/lib64/libcudart.so.12", .name = "cudaMalloc+0x65"},
		{.file = "/env/lib/python3.11/site-packages/cupy/cuda/memory.cpython-311.so", .name = "Memory_init+0x1"},
		{.file = "/usr/bin/python3.11", .name = "_PyEval_EvalFrameDefault+0x1"},
	};
	const struct call_frame interpreter[] = {
		{.file = "/cuda/lib64/libcudart.so.12", .name = "cudaMalloc+0x65"},
		{.file = "/lib/x86_64-linux-gnu/libffi.so.8", .name = "ffi_call+0xcd"},
		{.file = "/usr/lib/python3.11/lib-dynload/_ctypes.so", .name = "_call+0x1"},
		{.file = "/usr/bin/python3.11", .name = "_PyEval_EvalFrameDefault+0x1"},
	};
	assert_string_equal(site(linked, LENGTH(linked)), "r/app asks+0x1a");
	assert_string_equal(site(package, LENGTH(package)), "cuda/memory.cpython-311.so Memory_init+0x1");
	assert_int_equal(call_site_level(interpreter, LENGTH(interpreter)), 1);
	assert_int_equal(call_site_level(package, 1), 0);
	const struct call_frame extension = {.file = "/src/me/python_pool.cpp", .name = "take", .line = 9};
	assert_string_equal(site(&extension, 1), "me/python_pool.cpp:9 take");
	const struct call_frame extended[] = {
		{.file = "/src/me/PyPool.h", .name = "take", .line = 9},
		interpreter[3],
		extension,
	};
	assert_int_equal(call_site_level(extended, LENGTH(extended)), 0);
	const struct call_frame below[] = { interpreter[3], extension };
	assert_int_equal(call_site_level(below, LENGTH(below)), 1);
	const struct call_frame started[] = {
		{.file = "??", .name = "??"},
		{.file = "./csu/../sysdeps/x86/libc-start.c", .name = "__libc_start_call_main", .line = 58},
		{.file = TORCH "distributed/run.py", .name = "main", .line = 7},
	};
	assert_int_equal(call_site_level(started, LENGTH(started)), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions_of_cpp_are_named_without_types),
		cmocka_unit_test(test_the_runtime_is_no_site),
		cmocka_unit_test(test_python_comes_before_compiled_code),
		cmocka_unit_test(test_what_an_optimizer_does),
		cmocka_unit_test(test_a_closure_is_not_the_optimizers),
		cmocka_unit_test(test_a_program_may_lie_in_a_folder_named_torch),
		cmocka_unit_test(test_windows_has_the_other_slash),
		cmocka_unit_test(test_other_libraries_of_arrays_are_no_place_either),
		cmocka_unit_test(test_what_intercepts_operations_is_no_place),
		cmocka_unit_test(test_compiled_programs_have_sites_too),
		cmocka_unit_test(test_the_allocator_is_no_site),
		cmocka_unit_test(test_an_operation_is_named_by_its_node),
		cmocka_unit_test(test_sums_of_gradients_are_autograds),
		cmocka_unit_test(test_buckets_are_of_gradients),
		cmocka_unit_test(test_fsdp_has_weights_and_gradients),
		cmocka_unit_test(test_a_cut_stack_of_autograd_is_of_gradients),
		cmocka_unit_test(test_workspaces_and_caches_are_no_activations),
		cmocka_unit_test(test_weights_are_loaded_in_threads),
		cmocka_unit_test(test_a_module_of_the_program_is_a_model),
		cmocka_unit_test(test_gradients_are_set_or_asked_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
