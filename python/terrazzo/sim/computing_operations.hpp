/* SPDX-License-Identifier: Apache-2.0
 *
 * What computing.cpp knows of each of PyTorch's operations: whether it is followed, what it changes, and what a check
 * of values that are not known finds.
 */
#ifndef TRZ_COMPUTING_OPERATIONS_HPP
#define TRZ_COMPUTING_OPERATIONS_HPP

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <optional>
#include <set>
#include <string>
#include <unordered_map>

namespace {

using at::Tensor;
using c10::DispatchKey;
using c10::IValue;

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
	bool takes_memory = false;       /* set_: gives a tensor other memory, which may hold what the host has sent */
	bool is_composite = false;       /* may change something though none of its parts does */
	bool is_limit = false;           /* clamp: limits values from below */
	std::optional<bool> if_unknown;  /* what a check of values that are not known finds */
	bool of_integers = false;        /* only of integers, and whether floating point is finite */
	std::optional<bool> extreme;     /* min, max: whether it is the greatest */
	std::optional<bool> exceeds;     /* lt, le, gt, ge: whether it asks for more */
	std::optional<size_t> orders;    /* topk, sort: the argument that says along which dimension */

	Operation(const char *called, const c10::OperatorHandle &op) : name(called), handle(op)
	{
		bool is_own = name.rfind("aten::", 0) == 0;
		is_collective = !is_own && name.find("c10d") != std::string::npos;
		own = name.substr(name.find("::") + 2);
		is_copy = own == "copy_";
		takes_memory = is_own && own == "set_";
		is_read = is_copy || own == "_local_scalar_dense";
		bool is_unique = own.find("unique") != std::string::npos;
		decides = own == "nonzero" || own == "equal" || is_unique;
		finds = is_unique || own == "mode";
		if (own == "all" || own == "_is_all_true" || own == "any" || own == "_is_any_true")
			if_unknown = own.find("all") != std::string::npos;
		of_integers = own == "eq" || own == "ne" || own == "isin" || own == "remainder";
		if (of_integers || own == "isnan" || own == "isposinf" || own == "isneginf")
			if_unknown = own == "ne";
		if (own == "min" || own == "amin" || own == "max" || own == "amax")
			extreme = own.find("max") != std::string::npos;
		if (own == "lt" || own == "le" || own == "gt" || own == "ge")
			exceeds = own[0] == 'g';
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
		bool is_seen = is_followed || is_composite || is_collective || takes_memory;
		return !is_seen && (is_own || (!has_kernel && written.empty()));
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

}  // namespace

#endif
