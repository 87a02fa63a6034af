/* SPDX-License-Identifier: Apache-2.0
 *
 * Control flow that depends on what the host has sent, for `terrazzo sim --scalars computed`. Kernels compute nothing
 * here, so this computes on the host what PyTorch's operations make of values that the host has sent, such as token
 * ids, masks, sizes and counters. It keeps those values beside the device's memory. When the program reads them, or
 * passes them to other ranks, they are put there; where they decide the size of a result, the driver answers with that
 * size. What comes of other values is not known, but for checks: all of it holds, and not any, and integers equal
 * nothing, so that a text goes on to its end and a value is valid.
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
	UNKNOWN,
	KNOWN,
	MADE,     /* by an operation, of values that are not known */
	COMING,   /* by a collective; may be known once it is there */
	CHANGING  /* whenever a graph runs; never known */
};

struct Kept {
	c10::weak_intrusive_ptr<c10::StorageImpl> storage;  /* keeps the address of the storage's object taken */
	const void *data;  /* a storage may get other memory */
	State state;       /* not UNKNOWN */
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

/* Whether its memory holds its values as they are, and only operations on this storage change them. */
bool is_plain(const Tensor &tensor)
{
	return is_dense(tensor) && !tensor.is_conj() && !tensor.is_neg() &&
	       (!is_on_device(tensor) || is_alone(tensor.storage()));
}

bool is_integral(const Tensor &tensor)
{
	return at::isIntegralType(tensor.scalar_type(), true);
}

bool fits(const Tensor &tensor, uint64_t size)
{
	return size <= (is_integral(tensor) ? INTEGER_BYTES : FLOAT_BYTES);
}

bool is_whole(const Tensor &tensor)
{
	return tensor.is_contiguous() && tensor.nbytes() == tensor.storage().nbytes();
}

/* The state of a tensor's memory, and what is kept of it. */
State find(const Tensor &tensor, Bytes &bytes)
{
	const at::Storage &storage = tensor.storage();
	std::lock_guard<std::mutex> held(lock);
	auto found = kept.find(storage.unsafeGetStorageImpl());
	if (found == kept.end() || found->second.data != storage.data())
		return State::UNKNOWN;
	bytes = found->second.bytes;
	return bytes && bytes->size() != storage.nbytes() ? State::UNKNOWN : found->second.state;
}

/* With the lock. Forgets the values of other storages in the range. */
void forget_range(const char *start, size_t size)
{
	for (auto i = kept.begin(); i != kept.end();) {
		auto data = static_cast<const char *>(i->second.data);
		bool is_in = i->second.bytes && data < start + size && start < data + i->second.bytes->size();
		i = is_in ? kept.erase(i) : std::next(i);
	}
}

void forget(const Tensor &tensor)
{
	if (!is_on_device(tensor))
		return;
	std::lock_guard<std::mutex> held(lock);
	auto found = kept.find(tensor.storage().unsafeGetStorageImpl());
	if (found != kept.end() && found->second.state != State::CHANGING)
		kept.erase(found);
	if (!is_alone(tensor.storage()))
		forget_range(static_cast<const char *>(tensor.storage().data()), tensor.storage().nbytes());
}

/* Notes a memory's state, unless graphs change it. */
void keep(const Tensor &tensor, State state, Bytes bytes = nullptr)
{
	const at::Storage &storage = tensor.storage();
	std::lock_guard<std::mutex> held(lock);
	auto found = kept.find(storage.unsafeGetStorageImpl());
	if (found != kept.end() && found->second.state == State::CHANGING && found->second.data == storage.data())
		return;
	if (kept.size() >= swept_at) {
		for (auto i = kept.begin(); i != kept.end();)
			i = i->second.storage.expired() ? kept.erase(i) : std::next(i);
		swept_at = 2 * kept.size() + 64;
	}
	kept.insert_or_assign(storage.unsafeGetStorageImpl(),
	                      Kept{storage.getWeakStorageImpl(), storage.data(), state, std::move(bytes)});
}

/* The tensor as it lies in these bytes. */
Tensor view(const Tensor &tensor, const Bytes &bytes)
{
	char *place = bytes->data() + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
	return at::from_blob(place, tensor.sizes(), tensor.strides(), [bytes](void *) {},
	                     at::TensorOptions().dtype(tensor.scalar_type()));
}

/* Keeps the values of a tensor whose memory holds nothing else, unless they are too large. */
void learn(const Tensor &tensor, const Tensor &values)
{
	if (!is_plain(tensor) || !fits(tensor, tensor.storage().nbytes()) || values.sizes() != tensor.sizes())
		return forget(tensor);
	auto bytes = std::make_shared<std::vector<char>>(tensor.storage().nbytes());
	view(tensor, bytes).copy_(values);
	keep(tensor, State::KNOWN, bytes);
}

uint64_t address_of(const Tensor &tensor)
{
	return reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
}

void *current_stream(const Tensor &tensor)
{
	return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
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

bool is_known(const Tensor &tensor)
{
	if (!is_plain(tensor) || tensor.numel() > ELEMENTS)
		return !tensor.defined();
	return is_on_device(tensor) ? known_bytes(tensor) != nullptr : tensor.is_cpu() && fits(tensor, tensor.nbytes());
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
	std::string name;
	std::optional<c10::OperatorHandle> handle;
	std::set<size_t> written, replaced;  /* arguments that it changes; those whose values do not count before */
	bool has_kernel = false, is_followed = false, is_copy = false, is_read = false, decides = false;
	bool is_collective = false, multiplies = false, is_on_host = false;
	std::optional<bool> if_unknown;  /* what a check of values that are not known finds */
	bool of_integers = false;        /* only of integers */
	std::optional<size_t> orders;    /* topk, sort: the argument that says along which dimension */

	Operation(const char *called, const c10::OperatorHandle &op) : name(called), handle(op)
	{
		bool is_own = name.rfind("aten::", 0) == 0;
		is_collective = !is_own && name.find("c10d") != std::string::npos;
		std::string own = name.substr(name.find("::") + 2);
		is_copy = own == "copy_";
		is_read = is_copy || own == "_local_scalar_dense";
		decides = own == "nonzero" || own == "equal" || own.find("unique") != std::string::npos;
		if (own == "all" || own == "_is_all_true" || own == "any" || own == "_is_any_true")
			if_unknown = own.find("all") != std::string::npos;
		of_integers = own == "eq" || own == "ne" || own == "isin" || own == "remainder";
		if (of_integers)
			if_unknown = own == "ne";
		bool is_set = is_copy || own == "fill_" || own == "zero_" || own == "random_";
		multiplies = is_product(own);
		is_on_host = is_copy || op.hasComputedKernelForDispatchKey(DispatchKey::CPU);
		const auto &arguments = op.schema().arguments();
		for (size_t i = 0; i < arguments.size(); i++) {
			bool is_flag = arguments[i].name() == "found_inf";  /* of gradients, which are taken to be finite */
			if (!arguments[i].alias_info() || !arguments[i].alias_info()->isWrite() || is_flag)
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
	}

	/* Whether nothing is to be done: its parts are seen, or it changes no values. */
	bool is_nothing() const
	{
		return !is_followed && !is_collective && (name.rfind("aten::", 0) == 0 || (!has_kernel && written.empty()));
	}

private:
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
		for (const char *start : {"empty", "new_empty", "_empty", "resize", "set_"})
			if (own.rfind(start, 0) == 0)
				return false;
		return true;
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
	std::optional<uint64_t> outer; /* the driver's answer before */
};

/* An operation that runs. */
struct Running : at::ObserverContext {
	const Operation &operation;
	std::vector<Tensor> changed;  /* the device's tensors that it changes */
	std::unique_ptr<Computation> computation;  /* NULL: what it makes will not be known */
	bool is_captured = false;
	std::optional<bool> guess;
	int64_t ordered = 0, dimension = 0;  /* how many values it orders, along which dimension */

	explicit Running(const Operation &of) : operation(of)
	{
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

/* The host's argument in the place of the device's. */
IValue given(const Operation &operation, Computation &c, size_t i, const IValue &value)
{
	auto change = [&](const Tensor &tensor) {
		if (!tensor.defined() || !operation.written.count(i))
			return tensor.defined() ? on_host(tensor) : tensor;
		c.changing.push_back(to_change(tensor, operation.replaced.count(i)));
		return c.changing.back();
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

/* What the operation asks the device: how many there are of what it finds, or whether it holds. */
uint64_t answer_of(const Operation &operation, const Computation &c, c10::ArrayRef<IValue> inputs)
{
	if (c.made[0].isBool())
		return c.made[0].toBool();
	int64_t dimension = operation.name == "aten::unique_dim" ? inputs[1].toInt() : 0;
	return static_cast<uint64_t>(c.made[0].toTensor().size(dimension));
}

std::unique_ptr<Computation> prepare(const Operation &operation, c10::ArrayRef<IValue> inputs)
{
	Ours here;
	auto c = std::make_unique<Computation>();
	for (size_t i = 0; i < inputs.size(); i++)
		c->given.push_back(given(operation, *c, i, inputs[i]));
	if (operation.decides) {
		compute(operation, *c);
		c->outer = answer;
		give(answer_of(operation, *c, inputs));
	}
	return c;
}

/* How many bytes there are from the tensor's first element to the end of its last. */
uint64_t extent(const Tensor &tensor)
{
	int64_t last = 0;
	for (int64_t i = 0; i < tensor.dim(); i++)
		last += (tensor.size(i) - 1) * tensor.stride(i);
	return static_cast<uint64_t>(last + 1) * tensor.itemsize();
}

/* Puts what is kept of a tensor into the device's memory, and vouches for it. Returns the memory's state. */
State put(const Tensor &tensor)
{
	Bytes bytes;
	State state = is_plain(tensor) && tensor.numel() > 0 ? find(tensor, bytes) : State::UNKNOWN;
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
	if (put(tensor) != State::MADE || extent(tensor) <= SHORT)
		return;
	std::vector<char> nothing(extent(tensor));
	driver.put(address_of(tensor), nothing.data(), nothing.size(), current_stream(tensor));
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

/* A collective may change all that it takes. */
void note_changed(Running &run, c10::ArrayRef<IValue> inputs)
{
	for (size_t i = 0; i < inputs.size(); i++)
		if (run.operation.is_collective || run.operation.written.count(i))
			each_tensor(inputs.slice(i, 1), [&](const Tensor &tensor) { run.changed.push_back(tensor); });
}

/* What a check finds whose values are not known. Integers leave no remainder by 1. */
std::optional<bool> guess(const Operation &operation, c10::ArrayRef<IValue> inputs)
{
	if (!operation.of_integers)
		return operation.if_unknown;
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

void begin(Running &run, c10::ArrayRef<IValue> inputs, const Tensor *device)
{
	const Operation &operation = run.operation;
	note_changed(run, inputs);
	note_order(run, inputs);
	run.is_captured = device && driver.is_captured(current_stream(*device));
	if (run.is_captured)
		return;
	if (operation.is_collective)
		each_tensor(inputs, put);
	if (!operation.is_followed)
		return;
	bool to_host = operation.is_read && !(operation.is_copy && is_on_device(run.changed[0]));
	if (to_host)
		put_for_host(inputs[operation.is_copy ? 1 : 0].toTensor());
	else if (can_draw(operation) && can_compute(operation, inputs))
		run.computation = prepare(operation, inputs);
	else
		run.guess = guess(operation, inputs);
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
	}
	return run;
}

/* A tensor that the operation has changed: all its memory, or that part of it. */
void change(const Tensor &tensor, const Tensor &values)
{
	if (!is_on_device(tensor))
		return;
	Bytes bytes = is_plain(tensor) ? known_bytes(tensor) : nullptr;
	if (bytes && values.sizes() == tensor.sizes())
		view(tensor, bytes).copy_(values);
	else if (is_plain(tensor) && is_whole(tensor))
		learn(tensor, values);
	else
		forget(tensor);
}

/* The values of what the operation has made or changed, once its size is known. */
void take(Running &run, c10::ArrayRef<IValue> results)
{
	Ours here;
	Computation &c = *run.computation;
	if (!c.is_done)
		compute(run.operation, c);
	for (size_t i = 0; i < run.changed.size(); i++)
		change(run.changed[i], c.changing[i]);
	if (!run.operation.written.empty())
		return;
	std::vector<Tensor> made;
	each_tensor(c.made, [&](const Tensor &tensor) { made.push_back(tensor); });
	size_t i = 0;
	each_tensor(results, [&](const Tensor &tensor) {
		if (is_on_device(tensor))
			learn(tensor, made.at(i));
		i++;
	});
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

/* What an operation has made of values that are not known. */
void note_made(const Tensor &tensor)
{
	if (is_plain(tensor) && is_on_device(tensor) && fits(tensor, tensor.storage().nbytes()))
		keep(tensor, State::MADE);
	else
		forget(tensor);
}

void learn_guess(const Tensor &result, bool holds)
{
	if (is_on_device(result))
		learn(result, at::full(result.sizes(), holds, result.scalar_type()));
}

void leave(const Running &run, c10::ArrayRef<IValue> results)
{
	if (run.is_captured) {
		each_tensor(results, give_to_graph);
		for (const Tensor &tensor : run.changed)
			give_to_graph(tensor);
		return;
	}
	bool is_made = run.operation.is_followed && !run.operation.is_copy;  /* a copy brings what was there */
	auto note = is_made ? note_made : forget;
	each_tensor(run.operation.has_kernel ? results : c10::ArrayRef<IValue>(), note);
	for (const Tensor &tensor : run.changed)
		note(tensor);
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
	if (!run.computation || results.size() != run.operation.handle->schema().returns().size())
		return false;  /* it has failed */
	auto fit = [](const Tensor &tensor) { return is_plain(tensor) && fits(tensor, tensor.nbytes()); };
	return std::all_of(results.begin(), results.end(), [&](const IValue &result) { return all_tensors(result, fit); });
}

void on_end(const at::RecordFunction &fn, at::ObserverContext *context)
{
	if (!context)
		return;
	auto &run = *static_cast<Running *>(context);
	if (run.operation.is_read || run.operation.is_collective)
		driver.vouch(0, 0);
	if (run.operation.decides && run.computation)
		give(run.computation->outer);
	c10::ArrayRef<IValue> results = own_of(fn.outputs(), run.operation.handle->schema().returns().size());
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
