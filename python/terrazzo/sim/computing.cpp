/* SPDX-License-Identifier: Apache-2.0
 *
 * Control flow that depends on what the host has sent, for `terrazzo sim --scalars computed`. Kernels compute nothing
 * here, so this computes on the host what PyTorch's operations make of values that the host has sent, such as token
 * ids, masks, sizes and counters. It keeps those values beside the device's memory. When the program reads them, or
 * passes them to other ranks, they are put there; where they decide the size of a result, the driver answers with that
 * size. What comes of other values is not known, but for checks: all of it holds, and not any, integers equal nothing,
 * so that a text goes on to its end and a value is valid, and floating point is finite.
 *
 * It observes operations as a profiler does (at::RecordFunction), so that a program runs, allocates and keeps stacks as
 * it does without. An operation of ATen's is followed where it has a kernel of its own for CUDA; others are made of
 * such. Only small tensors are followed, those of floating point only far below the size of weights. What a graph or
 * compiled code changes is not seen, nor what other libraries do.
 *
 * Compiled once for each PyTorch, like requests.cpp; inject/sitecustomize.py loads it.
 */
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using at::Tensor;
using c10::DispatchKey;
using c10::IValue;
using Values = std::vector<IValue>;

constexpr uint64_t INTEGER_BYTES = 1 << 24, FLOAT_BYTES = 1 << 14; /* no larger tensors are followed */
constexpr int64_t ELEMENTS = 1 << 27; /* and no larger views of them, of which some repeat their elements */
constexpr int64_t FACTORS = 1 << 8;   /* nor products of matrices with more: that is layers, not sizes or places */
constexpr int64_t ORDERED = 1 << 9;   /* are no more values in order: those would be words, not experts */
constexpr uint64_t AWAITED_BYTES = 1 << 16, ORDERED_BYTES = 1 << 21;
constexpr uint64_t SHORT = 16;        /* no longer reads are answered by the driver */

/* The simulated driver (lookalike/lookalike.h). */
struct Driver {
	bool (*is_captured)(void *stream);
	bool (*get)(uint64_t address, void *bytes, uint64_t size, void *stream);
	void (*put)(uint64_t address, const void *bytes, uint64_t size, void *stream);
	void (*vouch)(uint64_t address, uint64_t size);
	void (*answer)(const uint64_t *answer);
	bool (*wait)(uint64_t address, void *stream);
} driver;

/* ---- the host's side ---- */

/* Warnings come from the device's operation, too. */
struct Quiet : c10::WarningHandler {
	void process(const c10::Warning &) override
	{
	}
};

c10::impl::LocalDispatchKeySet plain_keys()
{
	auto keys = c10::impl::tls_local_dispatch_key_set();
	keys.included_ = c10::DispatchKeySet(DispatchKey::BackendSelect);
	keys.excluded_ = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
	return keys;
}

/* While one exists, operations are ours: neither observed, nor part of the program's graphs, modes and transforms. */
struct Ours {
	at::DisableRecordFunctionGuard unobserved;
	c10::impl::ForceDispatchKeyGuard keys{plain_keys()};
	c10::InferenceMode inference;
	Quiet quiet;
	c10::WarningUtils::WarningHandlerGuard warnings{&quiet};
};

/* Random numbers that the device draws; the program's own on the host stay as they are. */
at::Generator &generator()
{
	static auto *own = new at::Generator(at::make_generator<at::CPUGeneratorImpl>(0));
	return *own;
}

/* ---- what is known ---- */

using Bytes = std::shared_ptr<std::vector<char>>;

enum class State {
	UNKNOWN,  /* what the memory holds counts */
	KNOWN,
	MADE,     /* by an operation, of values that are not known; what the memory holds is old */
	COMING,   /* by a collective; may be known once it is there */
	CHANGING, /* whenever a graph runs; never known */
	LOST      /* so, too, but by kernels: what the memory holds is old */
};

bool is_of_graphs(State state)
{
	return state == State::CHANGING || state == State::LOST;
}

bool is_old(State state)
{
	return state == State::MADE || state == State::LOST;
}

struct Kept {
	c10::weak_intrusive_ptr<c10::StorageImpl> storage;  /* keeps the address of the storage's object taken */
	const void *data;  /* a storage may get other memory */
	size_t size;
	State state;
	Bytes bytes;       /* if KNOWN */
};

std::mutex lock;
auto &kept = *new std::unordered_map<const c10::StorageImpl *, Kept>;  /* with the lock */
size_t swept_at = 64;

/* Whether the tensor is no more than a view of memory: no subclass, no transform's, no list of tensors. */
bool is_dense(const Tensor &tensor)
{
	static constexpr auto others = c10::DispatchKeySet({DispatchKey::Python, DispatchKey::Functionalize,
	    DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper, DispatchKey::Batched, DispatchKey::ZeroTensor,
	    DispatchKey::NestedTensor, DispatchKey::Quantized});
	return tensor.defined() && !tensor.key_set().has_any(others) && tensor.layout() == at::kStrided &&
	       tensor.has_storage();
}

bool is_on_device(const Tensor &tensor)
{
	return is_dense(tensor) && tensor.key_set().has_backend(c10::BackendComponent::CUDABit);
}

/* Whether the memory is of PyTorch's allocator and no other storage, process or library has it, too. */
bool is_alone(const at::Storage &storage)
{
	return storage.data_ptr().get_deleter() == c10::cuda::CUDACachingAllocator::get()->raw_deleter();
}

/* Whether only operations on its storage change its memory. */
bool is_plain(const Tensor &tensor)
{
	return is_dense(tensor) && (!is_on_device(tensor) || is_alone(tensor.storage()));
}

bool is_integral(const Tensor &tensor)
{
	return at::isIntegralType(tensor.scalar_type(), true);
}

bool fits(const Tensor &tensor, uint64_t size)
{
	return size <= (is_integral(tensor) ? INTEGER_BYTES : FLOAT_BYTES);
}

/* Whether the tensor is all of its memory, in whatever order. */
bool is_whole(const Tensor &tensor)
{
	return tensor.is_non_overlapping_and_dense() && tensor.nbytes() == tensor.storage().nbytes();
}

/* The state of a tensor's memory, and what is kept of it. */
State find(const Tensor &tensor, Bytes &bytes)
{
	const at::Storage &storage = tensor.storage();
	std::lock_guard<std::mutex> held(lock);
	auto found = kept.find(storage.unsafeGetStorageImpl());
	if (found == kept.end() || !is_alone(storage))
		return State::UNKNOWN;
	State state = found->second.state;
	bytes = found->second.bytes;
	if (found->second.data == storage.data() && (!bytes || found->second.size == storage.nbytes()))
		return state;
	bytes = nullptr;
	return state == State::KNOWN || state == State::MADE ? State::MADE : State::UNKNOWN;
}

/* With the lock. Calls the function for what is kept of other storages in a storage's memory. */
template <typename Function>
void each_in(const at::Storage &storage, Function function)
{
	auto start = static_cast<const char *>(storage.data());
	for (auto &[impl, other] : kept) {
		auto data = static_cast<const char *>(other.data);
		bool is_in = impl != storage.unsafeGetStorageImpl() && !other.storage.expired();
		if (is_in && data < start + storage.nbytes() && start < data + other.size)
			function(other);
	}
}

/* What is known of the memory no longer is: what comes there is in the memory, or else lost. */
void forget(const Tensor &tensor, bool is_lost = false)
{
	if (!is_on_device(tensor))
		return;
	std::lock_guard<std::mutex> held(lock);
	auto found = kept.find(tensor.storage().unsafeGetStorageImpl());
	if (found != kept.end() && !is_of_graphs(found->second.state))
		kept.erase(found);
	if (is_alone(tensor.storage()))
		return;
	each_in(tensor.storage(), [&](Kept &other) {
		if (!is_of_graphs(other.state))
			other.state = is_lost ? State::MADE : State::UNKNOWN;
		other.bytes = nullptr;
	});
}

/* Notes a memory's state, unless graphs change it. */
void keep(const Tensor &tensor, State state, Bytes bytes = nullptr)
{
	const at::Storage &storage = tensor.storage();
	std::lock_guard<std::mutex> held(lock);
	auto found = kept.find(storage.unsafeGetStorageImpl());
	bool is_graphs = found != kept.end() && is_of_graphs(found->second.state) && found->second.data == storage.data();
	if (is_graphs && !is_of_graphs(state))
		return;
	if (kept.size() >= swept_at) {
		for (auto i = kept.begin(); i != kept.end();)
			i = i->second.storage.expired() ? kept.erase(i) : std::next(i);
		swept_at = 2 * kept.size() + 64;
	}
	kept.insert_or_assign(storage.unsafeGetStorageImpl(),
	                      Kept{storage.getWeakStorageImpl(), storage.data(), storage.nbytes(), state,
	                           std::move(bytes)});
}

uint64_t address_of(const Tensor &tensor)
{
	return reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
}

void *current_stream(const Tensor &tensor)
{
	return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

/* How many bytes there are from the tensor's first element to the end of its last. */
uint64_t extent(const Tensor &tensor)
{
	int64_t last = 0;
	for (int64_t i = 0; i < tensor.dim(); i++)
		last += (tensor.size(i) - 1) * tensor.stride(i);
	return static_cast<uint64_t>(last + 1) * tensor.itemsize();
}

/* From here on the tensor's memory holds 0, unless it is too large to be followed. */
void put_nothing(const Tensor &tensor)
{
	if (tensor.numel() == 0 || !fits(tensor, extent(tensor)))
		return;
	std::vector<char> nothing(extent(tensor));
	driver.put(address_of(tensor), nothing.data(), nothing.size(), current_stream(tensor));
}

void forget_old(const Tensor &tensor)
{
	forget(tensor);
}

/* What an operation has put there is not known, here or wherever else the memory is read. */
void spoil(const Tensor &tensor)
{
	if (!is_on_device(tensor))
		return;
	bool is_shared = !is_alone(tensor.storage());
	if (!is_shared && fits(tensor, tensor.storage().nbytes()))
		keep(tensor, State::MADE);
	else
		forget(tensor, true);
	if (is_shared)
		put_nothing(tensor);
}

/* The tensor as it lies in these bytes. */
Tensor view(const Tensor &tensor, const Bytes &bytes)
{
	char *place = bytes->data() + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
	Tensor values = at::from_blob(place, tensor.sizes(), tensor.strides(), [bytes](void *) {},
	                              at::TensorOptions().dtype(tensor.scalar_type()));
	values._set_conj(tensor.is_conj());
	values._set_neg(tensor.is_neg());
	return values;
}

/* Keeps the values of a tensor whose memory holds nothing else, unless they are too large. */
void learn(const Tensor &tensor, const Tensor &values)
{
	if (!is_plain(tensor) || !fits(tensor, tensor.storage().nbytes()) || values.sizes() != tensor.sizes())
		return spoil(tensor);
	auto bytes = std::make_shared<std::vector<char>>(tensor.storage().nbytes());
	view(tensor, bytes).copy_(values);
	keep(tensor, State::KNOWN, bytes);
}

/* What a collective brings; NULL: it is not known. */
Bytes await(const Tensor &tensor)
{
	const at::Storage &storage = tensor.storage();
	auto bytes = std::make_shared<std::vector<char>>(storage.nbytes());
	auto address = reinterpret_cast<uintptr_t>(storage.data());
	if (!driver.get(address, bytes->data(), bytes->size(), current_stream(tensor))) {
		forget(tensor);
		return nullptr;
	}
	keep(tensor, State::KNOWN, bytes);
	return bytes;
}

/* What is known of the memory of a tensor of the device, or NULL. */
Bytes known_bytes(const Tensor &tensor)
{
	Bytes bytes;
	return find(tensor, bytes) == State::COMING ? await(tensor) : bytes;
}

/* Memory of the host's that a copy from the device may be on its way to. */
struct Arriving {
	const char *start, *end;
	uint64_t from;
	void *stream;
};

auto &arriving = *new std::vector<Arriving>;  /* with the lock */
constexpr size_t ARRIVING = 64;               /* so many of the newest */

void expect_on_host(const Tensor &tensor, const Tensor &from)
{
	auto start = static_cast<const char *>(tensor.storage().data());
	std::lock_guard<std::mutex> held(lock);
	if (arriving.size() == ARRIVING)
		arriving.erase(arriving.begin());
	arriving.push_back({start, start + tensor.storage().nbytes(), address_of(from), current_stream(from)});
}

/* Waits for what is on its way to the host's tensor. */
void await_on_host(const Tensor &tensor)
{
	auto start = static_cast<const char *>(tensor.storage().data()), end = start + tensor.storage().nbytes();
	std::vector<Arriving> awaited;
	{
		std::lock_guard<std::mutex> held(lock);
		auto is_there = [&](const Arriving &a) { return a.start < end && start < a.end; };
		auto rest = std::stable_partition(arriving.begin(), arriving.end(),
		                                  [&](const Arriving &a) { return !is_there(a); });
		awaited.assign(rest, arriving.end());
		arriving.erase(rest, arriving.end());
	}
	for (const Arriving &a : awaited)
		driver.wait(a.from, a.stream);
}

bool is_known_on_host(const Tensor &tensor)
{
	if (!tensor.is_cpu() || !fits(tensor, tensor.nbytes()))
		return false;
	await_on_host(tensor);
	return true;
}

bool is_known(const Tensor &tensor)
{
	if (!is_plain(tensor) || tensor.numel() > ELEMENTS)
		return !tensor.defined();
	return is_on_device(tensor) ? known_bytes(tensor) != nullptr : is_known_on_host(tensor);
}

/* The values of a tensor that is known. One of the device gives a view of what is kept of its memory. */
Tensor on_host(const Tensor &tensor)
{
	if (!is_on_device(tensor))
		return tensor;
	Bytes bytes = known_bytes(tensor);
	TORCH_CHECK(bytes);  /* another thread may have changed it */
	return view(tensor, bytes);
}

/* ---- operations ---- */

/* Whether the function holds for all tensors; it is called up to the first for which it does not. */
template <typename Function>
bool all_tensors(const IValue &value, Function holds)
{
	if (value.isTensor())
		return holds(value.toTensor());
	if (value.isList())
		for (const IValue &part : value.toListRef())
			if (!all_tensors(part, holds))
				return false;
	return true;
}

template <typename Function>
void each_tensor(c10::ArrayRef<IValue> values, Function function)
{
	for (const IValue &value : values)
		all_tensors(value, [&](const Tensor &tensor) {
			function(tensor);
			return true;
		});
}

/* What there is to know of one of PyTorch's operations. */
struct Operation {
	std::string name, own;  /* with its namespace, and without */
	std::optional<c10::OperatorHandle> handle;
	std::set<size_t> written, replaced;  /* arguments that it changes; those whose values do not count before */
	std::set<size_t> statistics;         /* of a norm, which changes them only if it `trains` */
	std::optional<size_t> trains;
	bool has_kernel = false, is_followed = false, is_copy = false, is_read = false, decides = false;
	bool is_collective = false, multiplies = false, is_on_host = false;
	bool finds = false;              /* one or more of anything, known or not */
	bool is_composite = false;       /* may change something though none of its parts does */
	bool is_limit = false;           /* clamp: limits values from below */
	std::optional<bool> if_unknown;  /* what a check of values that are not known finds */
	bool of_integers = false;        /* only of integers, and whether floating point is finite */
	std::optional<size_t> orders;    /* topk, sort: the argument that says along which dimension */

	Operation(const char *called, const c10::OperatorHandle &op) : name(called), handle(op)
	{
		bool is_own = name.rfind("aten::", 0) == 0;
		is_collective = !is_own && name.find("c10d") != std::string::npos;
		own = name.substr(name.find("::") + 2);
		is_copy = own == "copy_";
		is_read = is_copy || own == "_local_scalar_dense";
		bool is_unique = own.find("unique") != std::string::npos;
		decides = own == "nonzero" || own == "equal" || is_unique;
		finds = is_unique || own == "mode";
		if (own == "all" || own == "_is_all_true" || own == "any" || own == "_is_any_true")
			if_unknown = own.find("all") != std::string::npos;
		of_integers = own == "eq" || own == "ne" || own == "isin" || own == "remainder";
		if (of_integers || own == "isnan" || own == "isposinf" || own == "isneginf")
			if_unknown = own == "ne";
		is_limit = own == "clamp" || own == "clamp_min";
		bool is_set = is_copy || own == "_foreach_copy_" || own == "fill_" || own == "zero_" || own == "random_";
		multiplies = is_product(own);
		is_on_host = is_copy || op.hasComputedKernelForDispatchKey(DispatchKey::CPU);
		const auto &arguments = op.schema().arguments();
		for (size_t i = 0; i < arguments.size(); i++) {
			if (is_collective && may_change(own, arguments[i]))
				written.insert(i);
			if (arguments[i].name() == "training" || arguments[i].name() == "train")
				trains = i;
			const auto *alias = arguments[i].alias_info();
			bool is_flag = arguments[i].name() == "found_inf";  /* of gradients, which are taken to be finite */
			if (is_statistic(own, arguments[i]))
				statistics.insert(i);
			else if (!alias || !alias->isWrite() || is_flag)
				continue;
			written.insert(i);
			if (is_set || arguments[i].is_out())
				replaced.insert(i);
		}
		if (own == "topk" || own == "sort")
			if (auto place = op.schema().argumentIndexWithName("dim"))
				orders = *place;
		has_kernel = is_copy || op.hasKernelForDispatchKey(DispatchKey::CUDA);
		is_followed = is_own && has_kernel && makes_values(op, own);
		bool is_explicit = op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd);
		bool may_call_kernels = is_explicit ? !written.empty() : !replaced.empty();  /* else it has autograd */
		is_composite = is_own && !has_kernel && may_call_kernels && makes_values(op, own);
	}

	/* Whether nothing is to be done: its parts are seen, or it changes no values. */
	bool is_nothing() const
	{
		bool is_own = name.rfind("aten::", 0) == 0;
		return !is_followed && !is_composite && !is_collective && (is_own || (!has_kernel && written.empty()));
	}

private:
	/* Norms of batches change their statistics, some without saying so. */
	static bool is_statistic(const std::string &own, const c10::Argument &argument)
	{
		bool is_running = argument.name() == "running_mean" || argument.name() == "running_var";
		return is_running && own.find("backward") == std::string::npos;
	}

	/* Whether a collective may change the argument: PyTorch does not say which it does. */
	static bool may_change(const std::string &own, const c10::Argument &argument)
	{
		return own != "send" && argument.name().rfind("input", 0) != 0;
	}

	static bool is_product(const std::string &own)
	{
		static const std::set<std::string> products = {"mm", "addmm", "_addmm_activation", "bmm", "baddbmm", "mv",
		                                               "addmv", "dot", "convolution"};
		return products.count(own) > 0;
	}

	/* Views need nothing, and new memory holds nothing. */
	static bool makes_values(const c10::OperatorHandle &op, const std::string &own)
	{
		for (const auto &result : op.schema().returns())
			if (result.alias_info() && !result.alias_info()->isWrite())
				return false;
		for (const char *start : {"empty", "new_empty", "_empty", "resize", "set_", "record_stream"})
			if (own.rfind(start, 0) == 0)
				return false;
		return !op.hasTag(at::Tag::inplace_view);
	}
};

/* Of random numbers only integers are drawn. */
bool can_draw(const Operation &operation)
{
	return !operation.handle->hasTag(at::Tag::nondeterministic_seeded) || operation.name == "aten::random_" ||
	       operation.name == "aten::randperm";
}

/* NULL: none that matters. A name that PyTorch knows stays where it is for as long as the process lives. */
const Operation *operation_of(const at::RecordFunction &fn)
{
	thread_local std::unordered_map<const char *, Operation> known;
	const char *name = fn.name();
	auto found = known.find(name);
	if (found == known.end() || found->second.name != name) {
		auto own_name = fn.operator_name();
		if (!own_name)
			return nullptr;
		auto handle = c10::Dispatcher::singleton().findSchema(*own_name);
		if (!handle)
			return nullptr;
		found = known.insert_or_assign(name, Operation(name, *handle)).first;
	}
	return found->second.is_nothing() ? nullptr : &found->second;
}

/* What is computed on the host. */
struct Computation {
	std::vector<Tensor> changing;  /* what it changes, in the order of Running's */
	Values given, made;            /* arguments and results */
	bool is_done = false;
};

enum class Seen {
	NOTHING,
	CHANGED,
	OLD /* changed what should have been replaced before */
};

/* An operation that runs. */
struct Running : at::ObserverContext {
	const Operation &operation;
	std::vector<Tensor> changed;  /* the device's tensors that it changes */
	std::vector<Bytes> before;    /* what is known of their memory, if anything is computed */
	bool trains = true;           /* if it is a norm */
	bool has_answered = false;    /* the driver answers for it */
	std::optional<uint64_t> outer; /* the driver's answer before */
	std::vector<bool> replaces;   /* those whose values did not count before */
	std::vector<Seen> seen;       /* what its parts have done to them, if it is composite */
	std::unique_ptr<Computation> computation;  /* NULL: what it makes will not be known */
	bool is_captured = false, brings = false;  /* a copy of what memory holds */
	std::optional<double> guess;  /* what each value of the result is */
	int64_t ordered = 0, dimension = 0;  /* how many values it orders, along which dimension */

	explicit Running(const Operation &of) : operation(of)
	{
	}

	bool changes_argument(size_t i) const
	{
		return operation.written.count(i) && (trains || !operation.statistics.count(i));
	}
};

/* Whether all of a tensor's memory is replaced, or the rest is known. */
bool can_be_replaced(const Tensor &tensor)
{
	return is_on_device(tensor) && is_plain(tensor) && fits(tensor, tensor.storage().nbytes()) &&
	       (is_whole(tensor) || known_bytes(tensor));
}

bool is_factor(const Tensor &tensor)
{
	return !tensor.defined() || tensor.numel() <= FACTORS;
}

/* Whether the host can do what the device does. */
bool can_compute(const Operation &operation, c10::ArrayRef<IValue> inputs)
{
	if (!operation.is_on_host)
		return false;
	for (size_t i = 0; operation.multiplies && i < inputs.size(); i++)
		if (!all_tensors(inputs[i], is_factor))
			return false;
	for (size_t i = 0; i < inputs.size(); i++)
		if (!all_tensors(inputs[i], operation.replaced.count(i) ? can_be_replaced : is_known))
			return false;
	return true;
}

/* An argument that the operation changes: a copy of its values, or room for them. */
Tensor to_change(const Tensor &tensor, bool is_replaced)
{
	return is_replaced ? at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()))
	                   : on_host(tensor).clone();
}

/* Whether it may do so before the host computes. */
bool changes_memory_of(const Running &run, const Tensor &tensor)
{
	return std::any_of(run.changed.begin(), run.changed.end(),
	                   [&](const Tensor &changed) { return changed.is_alias_of(tensor); });
}

/* The host's argument in the place of the device's. */
IValue given(const Running &run, size_t i, const IValue &value)
{
	const Operation &operation = run.operation;
	auto change = [&](const Tensor &tensor) {
		if (!tensor.defined())
			return tensor;
		if (!run.changes_argument(i))
			return changes_memory_of(run, tensor) ? on_host(tensor).clone() : on_host(tensor);
		run.computation->changing.push_back(to_change(tensor, operation.replaced.count(i)));
		return run.computation->changing.back();
	};
	if (value.isTensor())
		return change(value.toTensor());
	if (value.isTensorList()) {
		c10::List<Tensor> list;
		for (const Tensor &tensor : value.toTensorList())
			list.push_back(change(tensor));
		return list;
	}
	if (value.isOptionalTensorList()) {
		c10::List<std::optional<Tensor>> list;
		for (std::optional<Tensor> tensor : value.toOptionalTensorList())
			list.push_back(tensor ? std::optional<Tensor>(change(*tensor)) : std::nullopt);
		return list;
	}
	if (value.isDevice())
		return c10::Device(at::kCPU);
	if (operation.handle->schema().arguments()[i].name() == "generator")
		return generator();
	return value;
}

void compute(const Operation &operation, Computation &c)
{
	c.made = std::move(c.given);
	operation.handle->callBoxed(c.made);
	c.is_done = true;
}

/* What the driver answers to this thread's short reads. */
thread_local std::optional<uint64_t> answer;

void give(const std::optional<uint64_t> &number)
{
	answer = number;
	driver.answer(number ? &*number : nullptr);
}

/* Until the operation ends. */
void answer_with(Running &run, uint64_t number)
{
	run.outer = answer;
	run.has_answered = true;
	give(number);
}

/* What the operation asks the device: how many there are of what it finds, or are true, or whether it holds. */
uint64_t answer_of(const Operation &operation, const Computation &c, c10::ArrayRef<IValue> inputs)
{
	if (c.made[0].isBool())
		return c.made[0].toBool();
	const Tensor &from = inputs[0].toTensor();
	if (from.scalar_type() == at::kBool && (operation.name == "aten::_unique" || operation.name == "aten::_unique2"))
		return static_cast<uint64_t>(on_host(from).sum().item<int64_t>());
	auto place = operation.handle->schema().argumentIndexWithName("dim");
	int64_t dimension = place && inputs[*place].isInt() ? inputs[*place].toInt() : 0;
	return static_cast<uint64_t>(c.made[0].toTensor().size(dimension));
}

void prepare(Running &run, c10::ArrayRef<IValue> inputs)
{
	Ours here;
	run.computation = std::make_unique<Computation>();
	Computation &c = *run.computation;
	for (const Tensor &tensor : run.changed)
		run.before.push_back(is_on_device(tensor) && is_plain(tensor) ? known_bytes(tensor) : nullptr);
	for (size_t i = 0; i < inputs.size(); i++)
		c.given.push_back(given(run, i, inputs[i]));
	if (!run.operation.decides)
		return;
	compute(run.operation, c);
	answer_with(run, answer_of(run.operation, c, inputs));
}

/* Puts what other storages have in the tensor's memory there. */
void put_others(const Tensor &tensor)
{
	std::vector<std::pair<uint64_t, Bytes>> others;
	{
		std::lock_guard<std::mutex> held(lock);
		each_in(tensor.storage(), [&](const Kept &other) {
			Bytes bytes = is_old(other.state) ? std::make_shared<std::vector<char>>(other.size) : other.bytes;
			if (bytes)
				others.emplace_back(reinterpret_cast<uintptr_t>(other.data), bytes);
		});
	}
	for (const auto &[address, bytes] : others) {
		driver.put(address, bytes->data(), bytes->size(), current_stream(tensor));
		driver.vouch(address, bytes->size());
	}
}

/* Puts what is kept of a tensor into the device's memory, and vouches for it. Returns the memory's state. */
State put(const Tensor &tensor)
{
	if (!is_on_device(tensor) || tensor.numel() == 0)
		return State::UNKNOWN;
	if (!is_alone(tensor.storage()))
		put_others(tensor);
	Bytes bytes;
	State state = find(tensor, bytes);
	if (state == State::KNOWN) {
		const char *values = bytes->data() + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
		driver.put(address_of(tensor), values, extent(tensor), current_stream(tensor));
		driver.vouch(address_of(tensor), extent(tensor));
	}
	return state;
}

/* Before a read. Of values that no host knows it gives 0, however long it is. */
void put_for_host(const Tensor &tensor)
{
	if (is_old(put(tensor)) && extent(tensor) > SHORT)
		put_nothing(tensor);
}

/* The first of the device's tensors, or NULL. */
const Tensor *device_tensor(c10::ArrayRef<IValue> inputs)
{
	const Tensor *found = nullptr;
	for (const IValue &value : inputs)
		if (!all_tensors(value, [&](const Tensor &tensor) { return !is_on_device(*(found = &tensor)); }))
			return found;
	return nullptr;
}

bool names_device(c10::ArrayRef<IValue> inputs)
{
	for (const IValue &value : inputs)
		if (value.isDevice() && value.toDevice().is_cuda())
			return true;
	return false;
}

void note_changed(Running &run, c10::ArrayRef<IValue> inputs)
{
	for (size_t i = 0; i < inputs.size(); i++)
		if (run.changes_argument(i))
			each_tensor(inputs.slice(i, 1), [&](const Tensor &tensor) {
				if (!tensor.defined())
					return;
				run.changed.push_back(tensor);
				run.replaces.push_back(run.operation.replaced.count(i));
			});
}

/* Whether a copy moves bytes that count, as they are. */
bool brings(const Tensor &to, const Tensor &from)
{
	Bytes known;
	State state = is_on_device(from) ? find(from, known) : State::UNKNOWN;
	bool counts = is_dense(from) && (state == State::UNKNOWN || state == State::CHANGING);
	bool same = to.scalar_type() == from.scalar_type() && to.is_conj() == from.is_conj() &&
	            to.is_neg() == from.is_neg() && to.sizes() == from.sizes();
	return counts && same && to.is_contiguous() && from.is_contiguous();
}

/* Floating point that is compared with itself equals it, and no infinity: so PyTorch asks whether it is finite. */
std::optional<bool> guess_finite(const Operation &operation, c10::ArrayRef<IValue> inputs)
{
	bool is_infinite = inputs[1].isDouble() && std::isinf(inputs[1].toDouble());
	bool is_itself = inputs[1].isTensor() && inputs[1].toTensor().is_same(inputs[0].toTensor());
	bool is_equality = operation.own == "eq" || operation.own == "ne";
	if (!is_equality || is_infinite == is_itself)
		return std::nullopt;
	return *operation.if_unknown != is_itself;
}

/* What is no less than 1, such as the number of somethings, is no more than that. */
std::optional<double> guess_number(c10::ArrayRef<IValue> inputs)
{
	double least = inputs[1].isScalar() ? inputs[1].toScalar().toDouble() : 0;
	return least >= 1 ? std::optional<double>(least) : std::nullopt;
}

/* What a check finds whose values are not known. Integers leave no remainder by 1. */
std::optional<double> guess(const Operation &operation, c10::ArrayRef<IValue> inputs)
{
	if (operation.is_limit)
		return guess_number(inputs);
	if (!operation.of_integers)
		return operation.if_unknown;
	if (inputs[0].isTensor() && inputs[0].toTensor().is_floating_point())
		return guess_finite(operation, inputs);
	bool is_one = inputs[1].isInt() && inputs[1].toInt() == 1;
	bool holds = inputs[0].isTensor() && at::isIntegralType(inputs[0].toTensor().scalar_type(), false) &&
	             (operation.name != "aten::remainder" || is_one);
	return holds ? operation.if_unknown : std::nullopt;
}

void note_order(Running &run, c10::ArrayRef<IValue> inputs)
{
	if (!run.operation.orders || inputs[0].toTensor().dim() == 0)
		return;
	const Tensor &values = inputs[0].toTensor();
	run.dimension = inputs[*run.operation.orders].toInt();
	run.ordered = values.size(run.dimension) <= ORDERED ? values.size(run.dimension) : 0;
}

/* Composite operations that run in this thread, the innermost last. */
thread_local std::vector<Running *> composites;

void open(Running &run)
{
	run.seen.resize(run.changed.size());
	composites.push_back(&run);
}

void begin(Running &run, c10::ArrayRef<IValue> inputs, const Tensor *device)
{
	const Operation &operation = run.operation;
	run.trains = operation.statistics.empty() || !operation.trains || inputs[*operation.trains].toBool();
	note_changed(run, inputs);
	note_order(run, inputs);
	run.is_captured = device && driver.is_captured(current_stream(*device));
	if (operation.is_composite)
		open(run);
	bool to_device = operation.is_copy && is_on_device(run.changed[0]);
	run.brings = to_device && brings(run.changed[0], inputs[1].toTensor());
	if (run.is_captured)
		return;
	if (operation.is_collective)
		each_tensor(inputs, put);
	if (!operation.is_followed)
		return;
	if (operation.is_read && !to_device) {
		const Tensor &from = inputs[operation.is_copy ? 1 : 0].toTensor();
		if (operation.is_copy && inputs[2].toBool())
			expect_on_host(run.changed[0], from);
		return put_for_host(from);
	}
	for (const Tensor &tensor : run.changed)
		if (is_on_device(tensor) && !is_alone(tensor.storage()))
			put(tensor);
	if (can_draw(operation) && can_compute(operation, inputs))
		prepare(run, inputs);
	else
		run.guess = guess(operation, inputs);
	if (operation.finds && !run.has_answered && inputs[0].toTensor().numel() > 0)
		answer_with(run, 1);
}

/* Of what PyTorch shows of a call, the operation's own: TorchScript shows all of its stack. */
c10::ArrayRef<IValue> own_of(c10::ArrayRef<IValue> shown, size_t count)
{
	return shown.slice(shown.size() - std::min(count, shown.size()));
}

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 9
/* Up to 2.8 PyTorch cannot show an integer of 2^63 or more: item(), whose result it is to show, fails instead. So the
 * result of such a read is not asked for, which PyTorch has no call for; nothing here needs it. */
template <auto Callbacks>
struct Opened {
	friend at::StepCallbacks &callbacks_of(at::RecordFunction &fn) { return fn.*Callbacks; }
};
at::StepCallbacks &callbacks_of(at::RecordFunction &fn);
template struct Opened<&at::RecordFunction::step_callbacks_>;

void hide_large_integer(const at::RecordFunction &fn, c10::ArrayRef<IValue> shown)
{
	if (shown.size() != 1 || !shown[0].isTensor() || shown[0].toTensor().scalar_type() != at::kUInt64)
		return;
	std::string name = fn.name();
	if (name == "aten::item" || name == "aten::_local_scalar_dense")
		callbacks_of(const_cast<at::RecordFunction &>(fn)).needs_outputs_ = false;
}
#else
void hide_large_integer(const at::RecordFunction &, c10::ArrayRef<IValue>) {}
#endif

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction &fn)
{
	c10::ArrayRef<IValue> shown(fn.inputs().data(), fn.inputs().size());
	hide_large_integer(fn, shown);
	const Tensor *device = device_tensor(shown);
	const Operation *operation = device || names_device(shown) ? operation_of(fn) : nullptr;
	if (!operation)
		return nullptr;
	c10::ArrayRef<IValue> inputs = own_of(shown, operation->handle->schema().arguments().size());
	if (inputs.size() < shown.size() && !(device = device_tensor(inputs)) && !names_device(inputs))
		return nullptr;
	auto run = std::make_unique<Running>(*operation);
	try {
		begin(*run, inputs, device);
	} catch (const std::exception &) {  /* the host cannot compute it, or no device could */
		run->computation.reset();
	}
	return run;
}

/* A tensor that the operation has changed: all its memory, or that part of what was known before, whatever the
 * operation's own parts have done there. */
void change(const Tensor &tensor, const Bytes &before, const Tensor &values)
{
	if (!is_on_device(tensor))
		return;
	if (before && before->size() == tensor.storage().nbytes() && values.sizes() == tensor.sizes()) {
		view(tensor, before).copy_(values);
		keep(tensor, State::KNOWN, before);
	} else if (is_plain(tensor) && is_whole(tensor)) {
		learn(tensor, values);
	} else {
		spoil(tensor);
	}
}

void learn_all(c10::ArrayRef<IValue> results, c10::ArrayRef<IValue> values)
{
	std::vector<Tensor> made;
	each_tensor(values, [&](const Tensor &tensor) { made.push_back(tensor); });
	size_t i = 0;
	each_tensor(results, [&](const Tensor &tensor) {
		if (is_on_device(tensor))
			learn(tensor, made.at(i));
		i++;
	});
}

/* The values of what the operation has made or changed, once its size is known. */
void take(Running &run, c10::ArrayRef<IValue> results)
{
	Ours here;
	Computation &c = *run.computation;
	if (!c.is_done)
		compute(run.operation, c);
	for (size_t i = 0; i < run.changed.size(); i++)
		change(run.changed[i], run.before[i], c.changing[i]);
	for (size_t i = 0; i < results.size(); i++)
		if (!run.operation.handle->schema().returns()[i].alias_info())
			learn_all(results.slice(i, 1), c10::ArrayRef<IValue>(c.made).slice(i, 1));
}

void lose_to_graph(const Tensor &tensor)
{
	if (is_on_device(tensor))
		keep(tensor, State::LOST);
}

void give_to_graph(const Tensor &tensor)
{
	if (is_on_device(tensor))
		keep(tensor, State::CHANGING);
}

/* Where values are that are not known, in their order: in each row the next few, so that all are chosen equally often,
 * as by a router that balances its experts. */
void order(const Running &run, const Tensor &places)
{
	if (!is_on_device(places) || places.numel() == 0 || places.nbytes() > ORDERED_BYTES)
		return;
	Tensor rows = places.movedim(run.dimension, -1);
	Tensor next = at::arange(places.numel(), at::kLong).remainder(run.ordered).view(rows.sizes());
	learn(places, next.movedim(-1, run.dimension));
}

void learn_guess(const Tensor &result, double value)
{
	if (is_on_device(result))
		learn(result, at::full(result.sizes(), value, result.scalar_type()));
}

/* What a copy has brought counts, unless the rest of the memory does not. */
void note_brought(const Tensor &tensor)
{
	Bytes known;
	if (is_whole(tensor) || !is_alone(tensor.storage()))
		forget(tensor);
	else if (find(tensor, known) != State::UNKNOWN)
		spoil(tensor);
}

/* What it has made or changed is not known. */
void lose(const Running &run, c10::ArrayRef<IValue> results)
{
	bool moves = run.operation.is_collective || run.brings;
	auto note = run.is_captured               ? (moves ? give_to_graph : lose_to_graph)
	            : run.brings                  ? note_brought
	            : run.operation.is_collective ? forget_old
	                                          : spoil;
	each_tensor(run.is_captured || run.operation.has_kernel ? results : c10::ArrayRef<IValue>(), note);
	for (const Tensor &tensor : run.changed)
		note(tensor);
}

void leave(const Running &run, c10::ArrayRef<IValue> results)
{
	lose(run, results);
	if (run.is_captured)
		return;
	if (!run.changed.empty() || results.empty() || (!run.guess && run.ordered == 0))
		return;
	Ours here;
	if (run.guess)
		learn_guess(results[0].toTensor(), *run.guess);
	if (run.ordered > 0 && results.size() == 2)
		order(run, results[1].toTensor());
}

/* Of what a collective brings only integers, such as sizes, are waited for, since this keeps the host waiting. */
void expect(const Tensor &tensor)
{
	if (is_on_device(tensor) && is_integral(tensor) && tensor.storage().nbytes() <= AWAITED_BYTES)
		keep(tensor, State::COMING);
}

bool can_take(const Running &run, c10::ArrayRef<IValue> results)
{
	if (!run.computation)
		return false;
	auto fit = [](const Tensor &tensor) {
		return !tensor.defined() || (is_plain(tensor) && fits(tensor, tensor.nbytes()));
	};
	return std::all_of(results.begin(), results.end(), [&](const IValue &result) { return all_tensors(result, fit); });
}

/* Shows the composite operations around it what has been changed. */
void show_changed(const Running &run)
{
	for (Running *outer : composites)
		for (size_t i = 0; i < outer->changed.size(); i++)
			for (size_t j = 0; j < run.changed.size(); j++)
				if (outer->seen[i] == Seen::NOTHING && run.changed[j].is_alias_of(outer->changed[i]))
					outer->seen[i] = outer->replaces[i] && !run.replaces[j] ? Seen::OLD : Seen::CHANGED;
}

/* What none of its parts has changed or replaced, it may have changed itself. */
void close(const Running &run, bool has_failed)
{
	if (composites.empty() || composites.back() != &run)
		return;
	composites.pop_back();
	if (has_failed)
		return;
	for (size_t i = 0; i < run.changed.size(); i++)
		if (run.seen[i] != Seen::CHANGED)
			(run.is_captured ? lose_to_graph : spoil)(run.changed[i]);
	show_changed(run);
}

void on_end(const at::RecordFunction &fn, at::ObserverContext *context)
{
	if (!context)
		return;
	auto &run = *static_cast<Running *>(context);
	if (run.operation.is_read || run.operation.is_collective)
		driver.vouch(0, 0);
	if (run.has_answered)
		give(run.outer);
	size_t count = run.operation.handle->schema().returns().size();
	c10::ArrayRef<IValue> results = own_of(fn.outputs(), count);
	bool has_failed = results.size() < count && !run.operation.is_collective;  /* and changed nothing */
	if (run.operation.is_composite)
		return close(run, has_failed);
	if (has_failed)
		return;
	show_changed(run);
	try {
		if (can_take(run, results))
			return take(run, results);
	} catch (const std::exception &) {
	}
	leave(run, results);
	if (run.operation.is_collective)
		for (const Tensor &tensor : run.changed)
			expect(tensor);
}

template <typename Function>
void look_up(void *library, const char *name, Function &function)
{
	function = reinterpret_cast<Function>(dlsym(library, name));
	if (!function)
		throw std::string("the driver is not terrazzo's, or another version");
}

}  // namespace

/* Other processes are about to get the storage: puts what is kept of it there. */
extern "C" __attribute__((visibility("default"))) void computing_share(const c10::StorageImpl *storage)
{
	Kept found{c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>()), nullptr, 0,
	           State::UNKNOWN, nullptr};
	{
		std::lock_guard<std::mutex> held(lock);
		auto entry = kept.find(storage);
		if (entry == kept.end())
			return;
		std::swap(found, entry->second);
		kept.erase(entry);
	}
	if (is_old(found.state))
		found.bytes = std::make_shared<std::vector<char>>(found.size);
	if (found.bytes && found.data == storage->data() && found.size == storage->nbytes())
		driver.put(reinterpret_cast<uintptr_t>(found.data), found.bytes->data(), found.size,
		           c10::cuda::getCurrentCUDAStream(storage->device().index()).stream());
}

/* NULL, or why values cannot be followed. */
extern "C" __attribute__((visibility("default"))) const char *computing_begin()
{
	static std::string failure;
	void *library = dlopen("libcuda.so.1", RTLD_LAZY);
	try {
		look_up(library, "trz_lookalike_is_captured", driver.is_captured);
		look_up(library, "trz_lookalike_get", driver.get);
		look_up(library, "trz_lookalike_put", driver.put);
		look_up(library, "trz_lookalike_vouch", driver.vouch);
		look_up(library, "trz_lookalike_answer", driver.answer);
		look_up(library, "trz_lookalike_wait", driver.wait);
	} catch (const std::string &why) {
		failure = why;
		return failure.c_str();
	}
	at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
	                          .needsInputs(true)
	                          .needsOutputs(true)
	                          .scopes({at::RecordScope::FUNCTION}));
	return nullptr;
}
