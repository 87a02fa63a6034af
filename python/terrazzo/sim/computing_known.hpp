/* SPDX-License-Identifier: Apache-2.0
 *
 * What computing.cpp knows of the device's memory: for each storage its bytes, or why it does not know them; and how
 * the host computes without the program's noticing. Its lock guards all of it.
 */
#ifndef TRZ_COMPUTING_KNOWN_HPP
#define TRZ_COMPUTING_KNOWN_HPP

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using at::Tensor;
using c10::DispatchKey;

constexpr uint64_t INTEGER_BYTES = 1 << 24, FLOAT_BYTES = 1 << 14; /* no larger tensors are followed */
constexpr uint64_t PART_BYTES = FLOAT_BYTES;  /* no larger memory is followed that is known in part */
constexpr int64_t ELEMENTS = 1 << 27; /* and no larger views of them, of which some repeat their elements */

/* The simulated driver (lookalike/lookalike.h). */
struct Driver {
	bool (*is_captured)(void *stream);
	bool (*get)(uint64_t address, void *bytes, uint64_t size, void *stream);
	void (*put)(uint64_t address, const void *bytes, uint64_t size, void *stream);
	void (*vouch)(uint64_t address, uint64_t size);
	void (*answer)(const uint64_t *answer);
	bool (*wait)(uint64_t address, void *stream);
	bool (*is_known)(uint64_t address, uint64_t size);
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
	PARTLY,   /* known where what is known has been written; what the memory holds is old */
	MADE,     /* by an operation, of values that are not known; what the memory holds is old */
	LEAST,    /* made so, too: the least of several values, none of which is known */
	MOST,     /* the greatest of several */
	COMING,   /* by a collective; may be known once it is there */
	CHANGING, /* whenever a graph runs; never known */
	LOST      /* so, too, but by kernels: what the memory holds is old */
};

bool is_of_graphs(State state)
{
	return state == State::CHANGING || state == State::LOST;
}

bool is_extreme(State state)
{
	return state == State::LEAST || state == State::MOST;
}

bool is_old(State state)
{
	return state == State::MADE || state == State::LOST || state == State::PARTLY || is_extreme(state);
}

struct Kept {
	c10::weak_intrusive_ptr<c10::StorageImpl> storage;  /* keeps the address of the storage's object taken */
	const void *data;  /* a storage may get other memory */
	size_t size;
	State state;
	Bytes bytes;       /* if KNOWN or PARTLY; where nothing is known, what the host will read */
	Bytes written;     /* if PARTLY: 1 for each element that is known */
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

/* Calls the function with the place of each of the tensor's elements in its memory, until it returns false; returns
 * whether it never did. */
template <typename Function>
bool all_places(const Tensor &tensor, Function holds, int64_t dimension = 0, int64_t from = 0)
{
	if (dimension == tensor.dim())
		return holds(static_cast<size_t>(tensor.storage_offset() + from));
	for (int64_t i = 0; i < tensor.size(dimension); i++)
		if (!all_places(tensor, holds, dimension + 1, from + i * tensor.stride(dimension)))
			return false;
	return true;
}

/* Whether the memory is kept as known in part, in elements of the tensor's size. */
bool is_partly(const Kept &entry, const Tensor &tensor)
{
	return entry.state == State::PARTLY && entry.data == tensor.storage().data() &&
	       entry.size == tensor.storage().nbytes() && entry.written->size() == entry.size / tensor.itemsize();
}

/* The state of a tensor's memory, and what is kept of it. The part that is known of a memory is KNOWN. */
State find(const Tensor &tensor, Bytes &bytes)
{
	const at::Storage &storage = tensor.storage();
	std::lock_guard<std::mutex> held(lock);
	auto found = kept.find(storage.unsafeGetStorageImpl());
	if (found == kept.end() || !is_alone(storage))
		return State::UNKNOWN;
	State state = found->second.state;
	if (state == State::PARTLY) {
		const Kept &partly = found->second;
		if (!is_partly(partly, tensor))
			return State::MADE;
		auto is_written = [&](size_t place) { return (*partly.written)[place] != 0; };
		if (!all_places(tensor, is_written))
			return all_places(tensor, std::not_fn(is_written)) ? State::MADE : State::PARTLY;
		bytes = partly.bytes;
		return State::KNOWN;
	}
	bytes = found->second.bytes;
	if (found->second.data == storage.data() && (!bytes || found->second.size == storage.nbytes()))
		return state;
	bytes = nullptr;
	return state == State::KNOWN || state == State::MADE || is_extreme(state) ? State::MADE : State::UNKNOWN;
}

/* LEAST or MOST, or else UNKNOWN. */
State extreme_of(const Tensor &tensor)
{
	if (!is_on_device(tensor))
		return State::UNKNOWN;
	const at::Storage &storage = tensor.storage();
	std::lock_guard<std::mutex> held(lock);
	auto found = kept.find(storage.unsafeGetStorageImpl());
	bool is_kept = found != kept.end() && is_extreme(found->second.state) && found->second.data == storage.data();
	return is_kept ? found->second.state : State::UNKNOWN;
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
void keep(const Tensor &tensor, State state, Bytes bytes = nullptr, Bytes written = nullptr)
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
	                           std::move(bytes), std::move(written)});
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

/* Keeps the rest of what is known of the tensor's memory. Returns false if it is all of it, or nothing is known. */
bool spoil_part(const Tensor &tensor)
{
	const at::Storage &storage = tensor.storage();
	if (is_whole(tensor) || storage.nbytes() > PART_BYTES)
		return false;
	Bytes bytes, written;
	{
		std::lock_guard<std::mutex> held(lock);
		auto found = kept.find(storage.unsafeGetStorageImpl());
		if (found == kept.end())
			return false;
		const Kept &entry = found->second;
		if (is_partly(entry, tensor))
			written = std::make_shared<std::vector<char>>(*entry.written);
		else if (entry.state == State::KNOWN && entry.data == storage.data() && entry.size == storage.nbytes())
			written = std::make_shared<std::vector<char>>(entry.size / tensor.itemsize(), 1);
		else
			return false;
		bytes = std::make_shared<std::vector<char>>(*entry.bytes);
	}
	all_places(tensor, [&](size_t place) {
		(*written)[place] = 0;
		std::fill_n(bytes->data() + place * tensor.itemsize(), tensor.itemsize(), 0);
		return true;
	});
	if (std::count(written->begin(), written->end(), 1) == 0)
		return false;
	keep(tensor, State::PARTLY, bytes, written);
	return true;
}

/* What an operation has put there is not known, here or wherever else the memory is read. */
void spoil(const Tensor &tensor)
{
	if (!is_on_device(tensor))
		return;
	bool is_shared = !is_alone(tensor.storage());
	if (!is_shared && spoil_part(tensor))
		return;
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

bool can_be_part(const Tensor &tensor)
{
	return tensor.storage().nbytes() <= PART_BYTES;
}

/* Whether a part of the tensor's memory is known; what, and where. */
bool find_parts(const Tensor &tensor, Bytes &bytes, Bytes &written)
{
	std::lock_guard<std::mutex> held(lock);
	auto found = kept.find(tensor.storage().unsafeGetStorageImpl());
	if (found == kept.end() || !is_partly(found->second, tensor) || !is_alone(tensor.storage()))
		return false;
	bytes = found->second.bytes;
	written = found->second.written;
	return true;
}

/* Where what is kept of a memory in part is known. */
Tensor where_written(const Tensor &tensor, const Bytes &written)
{
	return at::from_blob(written->data() + tensor.storage_offset(), tensor.sizes(), tensor.strides(),
	                     [written](void *) {}, at::TensorOptions().dtype(at::kBool));
}

/* Keeps the values of a part of the tensor's memory, whose rest is not known. */
void learn_part(const Tensor &tensor, const Tensor &values)
{
	Bytes bytes, written;
	if (!find_parts(tensor, bytes, written)) {
		bytes = std::make_shared<std::vector<char>>(tensor.storage().nbytes());
		written = std::make_shared<std::vector<char>>(tensor.storage().nbytes() / tensor.itemsize());
	}
	view(tensor, bytes).copy_(values);
	where_written(tensor, written).fill_(true);
	bool is_all = std::count(written->begin(), written->end(), 1) == static_cast<ptrdiff_t>(written->size());
	keep(tensor, is_all ? State::KNOWN : State::PARTLY, bytes, is_all ? nullptr : written);
}

/* The host will read these values, which no operation knows. */
void imagine(const Tensor &tensor, const Tensor &values)
{
	if (!is_plain(tensor) || !is_whole(tensor))
		return;
	auto bytes = std::make_shared<std::vector<char>>(tensor.storage().nbytes());
	view(tensor, bytes).copy_(values);
	keep(tensor, State::PARTLY, bytes, std::make_shared<std::vector<char>>(tensor.numel()));
}

bool is_zero(const Tensor &tensor, const Bytes &bytes)
{
	auto is_zero_at = [&](size_t place) {
		auto start = bytes->begin() + static_cast<ptrdiff_t>(place * tensor.itemsize());
		return std::all_of(start, start + static_cast<ptrdiff_t>(tensor.itemsize()), [](char c) { return c == 0; });
	};
	return all_places(tensor, is_zero_at);
}

/* What a collective or the host brings; NULL: it is not known. */
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

/* Memory that no operation has filled may hold what the host has sent: that of tensors that are unpickled. */
void learn_sent(const Tensor &tensor)
{
	Bytes bytes;
	if (!is_on_device(tensor) || !is_plain(tensor) || !fits(tensor, tensor.storage().nbytes()))
		return;
	auto address = reinterpret_cast<uintptr_t>(tensor.storage().data());
	if (find(tensor, bytes) == State::UNKNOWN && driver.is_known(address, tensor.storage().nbytes()))
		await(tensor);
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

}  // namespace

#endif
