/* SPDX-License-Identifier: Apache-2.0
 *
 * Full parity with PyTorch's own allocator: what torch.cuda.memory_stats, snapshots, pools, graph trees, profilers and
 * observers ask of an allocator, answered from terrazzo's heaps. This file has the functions that Python calls.
 *
 * python/terrazzo/torch compiles this file against the installed PyTorch, since the classes are not part of a stable
 * interface, and with it every shim_*.cpp as one unit: a user waits for it at the first install(), PyTorch's headers
 * take most of the time, and compiled apart the files take five times as long. Each still includes what it needs.
 */
#include "shim_allocator.cpp"
#include "shim_calls.cpp"
#include "shim_history.cpp"
#include "shim_native.cpp"
#include "shim_pools.cpp"
#include "shim_share.cpp"
#include "shim_snapshots.cpp"
#include "shim_source.cpp"
#include "shim_statistics.cpp"
#include "shim_trackers.cpp"

/* trz_torch_trim, noted while PyTorch records. */
extern "C" TRZ_API size_t trz_torch_shim_trim(size_t keep)
{
	std::shared_ptr<c10::GatheredContext> context;
	try {
		context = shim::history().gather(shim::RecordContext::ALL);
	} catch (const std::exception &e) {
		TORCH_WARN("terrazzo: the stack of a trim was not recorded: ", e.what());
	}
	return shim::trim_noted(nullptr, keep, std::move(context));
}

/* trz_set_warning_callback for a callback in Python, which may ask for a snapshot, or record; it gets no `user`. */
extern "C" TRZ_API int trz_torch_shim_on_warning(trz_heap *heap, trz_warning_callback *callback)
{
	trz_warning_callback *apart = [](void *user, const trz_warning_info *info) {
		shim::Apart from_others;
		reinterpret_cast<trz_warning_callback *>(user)(nullptr, info);
	};
	return trz_set_warning_callback(heap, callback ? apart : nullptr, reinterpret_cast<void *>(callback));
}

/* Makes terrazzo PyTorch's allocator. NULL, or the reason why it cannot; the text lives as long as the process. So does
 * the allocator: threads use it until the very end, when PyTorch has dropped its own reference. */
extern "C" TRZ_API const char *trz_torch_shim_install(void)
{
	static std::string *text = new std::string;
	try {
		auto made = std::make_shared<shim::Allocator>(shim::cca::get());
		torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(made);
		made->take_over();
		static auto *kept = new std::shared_ptr<shim::Allocator>(made);
		(void)kept;
		trz_torch_follow_events();
		return nullptr;
	} catch (const c10::Error &e) {
		*text = e.what_without_backtrace();
	} catch (const std::exception &e) {
		*text = e.what();
	}
	return text->c_str();
}
