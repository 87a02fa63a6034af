/* SPDX-License-Identifier: Apache-2.0
 *
 * Control flow that depends on what the host has sent, for `terrazzo sim --scalars computed`. Kernels compute nothing
 * here, so this computes on the host what PyTorch's operations make of values that the host has sent, such as token
 * ids, masks, sizes and counters. It keeps those values beside the device's memory (computing_known.hpp). When the
 * program reads them, or passes them to other ranks, they are put there; where they decide the size of a result, the
 * driver answers with that size. What comes of other values is not known, but for checks: all of it holds, and not any,
 * integers equal nothing, so that a text goes on to its end and a value is valid, and floating point is finite.
 *
 * It observes operations as a profiler does (at::RecordFunction), so that a program runs, allocates and keeps stacks as
 * it does without. An operation of ATen's is followed where it has a kernel of its own for CUDA; others are made of
 * such. Only small tensors are followed, those of floating point only far below the size of weights. What a graph or
 * compiled code changes is not seen, nor what other libraries do.
 *
 * Compiled once for each PyTorch, like requests.cpp; inject/sitecustomize.py loads it.
 */
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <dlfcn.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "computing_known.hpp"
#include "computing_operations.hpp"

namespace {

using Values = std::vector<IValue>;

constexpr int64_t FACTORS = 1 << 8;   /* no products of matrices with more: that is layers, not sizes or places */
constexpr int64_t ORDERED = 1 << 9;   /* are no more values in order: those would be words, not experts */
constexpr uint64_t AWAITED_BYTES = 1 << 16, ORDERED_BYTES = 1 << 21;
constexpr uint64_t SHORT = 16;        /* no longer reads are answered by the driver */

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
	Tensor compared;              /* the result, of what is known in part */
	int64_t ordered = 0, dimension = 0;  /* how many values it orders, along which dimension */

	explicit Running(const Operation &of) : operation(of)
	{
	}

	bool changes_argument(size_t i) const
	{
		return operation.written.count(i) && (trains || !operation.statistics.count(i));
	}
};

/* Whether what it becomes can be kept: all of its memory, or that part of it. */
bool can_be_replaced(const Tensor &tensor)
{
	return is_on_device(tensor) && is_plain(tensor) && fits(tensor, tensor.storage().nbytes()) &&
	       (is_whole(tensor) || known_bytes(tensor) || can_be_part(tensor));
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

void put_kept(const Tensor &tensor, const Bytes &bytes)
{
	const char *values = bytes->data() + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
	driver.put(address_of(tensor), values, extent(tensor), current_stream(tensor));
	driver.vouch(address_of(tensor), extent(tensor));
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
	if (state == State::KNOWN)
		put_kept(tensor, bytes);
	return state;
}

/* Before a read. Of values that no host knows it gives 0, however long it is. */
void put_for_host(const Tensor &tensor)
{
	State state = put(tensor);
	Bytes bytes, written;
	bool has_parts = is_old(state) && find_parts(tensor, bytes, written);
	if (has_parts && (state == State::PARTLY || !is_zero(tensor, bytes)))
		put_kept(tensor, bytes);
	else if (is_old(state) && extent(tensor) > SHORT)
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

/* Whether a copy moves bytes that count, as they are. What the host has sent to a graph's input is in its memory. */
bool brings(const Tensor &to, const Tensor &from, bool is_captured)
{
	Bytes known;
	State state = is_on_device(from) ? find(from, known) : State::UNKNOWN;
	bool is_input = is_captured && state == State::KNOWN;
	bool counts = is_dense(from) && (is_input || state == State::UNKNOWN || state == State::CHANGING);
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

/* Whether the least of values that are not known exceeds something is whether all do, and so on. */
std::optional<double> guess_extreme(const Operation &operation, c10::ArrayRef<IValue> inputs)
{
	State state = inputs[0].isTensor() ? extreme_of(inputs[0].toTensor()) : State::UNKNOWN;
	if (!is_extreme(state))
		return std::nullopt;
	return (state == State::LEAST) == *operation.exceeds;
}

/* What a check finds whose values are not known. Integers leave no remainder by 1. */
std::optional<double> guess(const Operation &operation, c10::ArrayRef<IValue> inputs)
{
	if (operation.is_limit)
		return guess_number(inputs);
	if (operation.exceeds)
		return guess_extreme(operation, inputs);
	if (!operation.of_integers)
		return operation.if_unknown;
	if (inputs[0].isTensor() && inputs[0].toTensor().is_floating_point())
		return guess_finite(operation, inputs);
	bool is_one = inputs[1].isInt() && inputs[1].toInt() == 1;
	bool holds = inputs[0].isTensor() && at::isIntegralType(inputs[0].toTensor().scalar_type(), false) &&
	             (operation.name != "aten::remainder" || is_one);
	return holds ? operation.if_unknown : std::nullopt;
}

/* Which of the integers that are known equal something; none of the others does. */
Tensor compare(const Operation &operation, c10::ArrayRef<IValue> inputs)
{
	Bytes bytes, written;
	bool is_equality = operation.own == "eq" || operation.own == "ne";
	if (!is_equality || !inputs[0].isTensor() || !is_on_device(inputs[0].toTensor()))
		return {};
	const Tensor &first = inputs[0].toTensor();
	bool is_other_known = !inputs[1].isTensor() || is_known(inputs[1].toTensor());
	if (!is_integral(first) || !is_other_known || !find_parts(first, bytes, written))
		return {};
	Ours here;
	Values stack = {view(first, bytes), inputs[1].isTensor() ? on_host(inputs[1].toTensor()) : inputs[1]};
	operation.handle->callBoxed(stack);
	Tensor is_known_there = where_written(first, written), result = stack[0].toTensor();
	return *operation.if_unknown ? result.logical_or(~is_known_there) : result.logical_and(is_known_there);
}

void note_order(Running &run, c10::ArrayRef<IValue> inputs)
{
	if (!run.operation.orders || inputs[0].toTensor().dim() == 0)
		return;
	const Tensor &values = inputs[0].toTensor();
	run.dimension = inputs[*run.operation.orders].toInt();
	run.ordered = values.size(run.dimension);
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
	if (operation.takes_memory)
		return;
	if (operation.is_composite)
		open(run);
	bool to_device = operation.is_copy && is_on_device(run.changed[0]);
	run.brings = to_device && brings(run.changed[0], inputs[1].toTensor(), run.is_captured);
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
	else if (run.changed.empty() && (run.compared = compare(operation, inputs)).defined())
		return;
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
	Bytes bytes, written;
	if (before && !find_parts(tensor, bytes, written) && before->size() == tensor.storage().nbytes() &&
	    values.sizes() == tensor.sizes()) {
		view(tensor, before).copy_(values);
		keep(tensor, State::KNOWN, before);
	} else if (is_plain(tensor) && is_whole(tensor)) {
		learn(tensor, values);
	} else if (is_plain(tensor) && can_be_part(tensor) && values.sizes() == tensor.sizes()) {
		learn_part(tensor, values);
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
 * as by a router that balances its experts. Of more these would be words: no operation knows them, and the host reads
 * different ones, far from those at either end that have a meaning of their own. */
void order(const Running &run, const Tensor &places)
{
	if (!is_on_device(places) || places.numel() == 0 || places.nbytes() > ORDERED_BYTES)
		return;
	bool are_words = run.ordered > ORDERED;
	if (are_words && !can_be_part(places))
		return;
	Tensor rows = places.movedim(run.dimension, -1);
	Tensor next = are_words ? at::arange(rows.size(-1), at::kLong).add(run.ordered / 2).expand(rows.sizes())
	                        : at::arange(places.numel(), at::kLong).view(rows.sizes());
	(are_words ? imagine : learn)(places, next.remainder(run.ordered).movedim(-1, run.dimension));
}

/* The least or greatest of all of a tensor's values. */
void note_extreme(const Tensor &result, State state)
{
	if (is_on_device(result) && result.dim() == 0 && is_whole(result) && is_alone(result.storage()))
		keep(result, state);
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
	if (!run.changed.empty() || results.empty())
		return;
	if (run.operation.extreme && results.size() == 1)
		note_extreme(results[0].toTensor(), *run.operation.extreme ? State::MOST : State::LEAST);
	if (!run.guess && run.ordered == 0 && !run.compared.defined())
		return;
	Ours here;
	if (run.compared.defined() && is_on_device(results[0].toTensor()))
		learn(results[0].toTensor(), run.compared);
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
	if (run.operation.takes_memory)
		return learn_sent(results[0].toTensor());
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
	           State::UNKNOWN, nullptr, nullptr};
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
		look_up(library, "trz_lookalike_is_known", driver.is_known);
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
