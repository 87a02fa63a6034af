/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory shared with other processes and other devices: handles, received memory, copies between peers.
 */
#include <c10/cuda/CUDAGuard.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "shim_allocator.hpp"
#include "shim_snapshots.hpp"

namespace shim {

/* The handle of a plain allocation, prefixed so that another allocator's is not taken for it. */
constexpr char IPC_PREFIX[] = "terrazzo1";
constexpr size_t IPC_PREFIX_BYTES = sizeof IPC_PREFIX - 1;

cca::ShareableHandle Allocator::share_plain(void *ptr, DeviceIndex device)
{
	cudaIpcMemHandle_t handle;
	auto address = reinterpret_cast<size_t>(ptr);
	for (const auto &s : walk(device, {0, 0}, true, false).segments) {
		if (address - s.address >= s.total_size)
			continue;
		TORCH_CHECK(!s.is_expandable, "terrazzo: this tensor cannot be sent to another process, since the device's "
		            "driver cannot export mapped memory: run with TERRAZZO_CONF=vmm:off, with which all memory can be "
		            "sent but none is moved");
		C10_CUDA_CHECK(cudaIpcGetMemHandle(&handle, reinterpret_cast<void *>(s.address)));
		return {static_cast<ptrdiff_t>(address - s.address),
		        IPC_PREFIX + std::string(reinterpret_cast<char *>(&handle), sizeof handle)};
	}
	TORCH_CHECK(false, "terrazzo: ", ptr, " lies in no segment");
}

cca::ShareableHandle Allocator::shareIpcHandle(void *ptr)
{
	trz_pointer_info info;
	trz_heap *owner = trz_torch_owner(ptr);
	if (!owner && native_used_)
		return native_->shareIpcHandle(ptr);
	TORCH_CHECK(owner, "terrazzo: ", ptr, " is not memory of terrazzo");
	size_t offset;
	std::string handle(TRZ_TORCH_HANDLE_BYTES, '\0');
	trz_status status = trz_torch_share(ptr, &offset, handle.data());
	if (status == TRZ_OK)
		return {static_cast<ptrdiff_t>(offset), std::move(handle)};
	TORCH_CHECK(status != TRZ_ERROR_INVALID_ARGUMENT, "terrazzo: this tensor cannot be sent to another process: ",
	            trz_torch_last_error(), ". Allocate it, or a copy of it, inside `with terrazzo.torch.shareable():`, or "
	            "run without exportable:off in TERRAZZO_CONF");
	if (status != TRZ_ERROR_NOT_SUPPORTED)
		check(status);
	check_heap(trz_query(owner, ptr, &info));
	return share_plain(ptr, static_cast<DeviceIndex>(info.device));
}

/* Waits for the current stream, then unmaps received memory. PyTorch waits for that stream, too, before it tells the
 * other process that the memory is no longer used, but only after this: by then the mapping has gone, and the other
 * process can give the memory back. */
static void close_received(void *ptr, DeviceIndex device, bool plain)
{
	try {
		c10::cuda::CUDAGuard on(device);
		cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device).stream();
		C10_CUDA_CHECK(cudaStreamSynchronize(stream));
		if (plain) {
			C10_CUDA_CHECK(cudaIpcCloseMemHandle(ptr));
			return;
		}
		trz_heap *heap = heap_of(device);
		check_heap(trz_record_stream(heap, ptr, stream));
		check(trz_torch_try_free(ptr, device));
		check_heap(trz_poll(heap));
	} catch (const c10::Error &e) {
		TORCH_WARN("terrazzo: memory of another process could not be given back: ", e.what_without_backtrace());
	}
}

static void *open_plain(const std::string &handle)
{
	void *ptr;
	cudaIpcMemHandle_t raw;
	TORCH_CHECK(handle.size() == IPC_PREFIX_BYTES + sizeof raw, "terrazzo: a handle of the wrong length was received");
	memcpy(&raw, handle.data() + IPC_PREFIX_BYTES, sizeof raw);
	C10_CUDA_CHECK(cudaIpcOpenMemHandle(&ptr, raw, cudaIpcMemLazyEnablePeerAccess));
	return ptr;
}

/* Memory of other processes, by handle: each is mapped once, for as long as some storage lies in it. */
class Received {
public:
	std::shared_ptr<void> get(const std::string &handle, DeviceIndex device)
	{
		std::lock_guard<std::mutex> guard(lock_);
		auto found = open_.find(handle);
		std::shared_ptr<void> known = found == open_.end() ? nullptr : found->second.lock();
		if (known)
			return known;
		bool plain = handle.compare(0, IPC_PREFIX_BYTES, IPC_PREFIX) == 0;
		void *ptr = plain ? open_plain(handle) : nullptr;
		if (!plain)
			check(trz_torch_receive(handle.data(), handle.size(), device,
			                        c10::cuda::getCurrentCUDAStream(device).stream(), &ptr));
		std::shared_ptr<void> made(ptr, [this, handle, device, plain](void *p) {
			give_back(handle, p, device, plain);
		});
		open_[handle] = made;
		return made;
	}

private:
	void give_back(const std::string &handle, void *ptr, DeviceIndex device, bool plain)
	{
		close_received(ptr, device, plain);
		std::lock_guard<std::mutex> guard(lock_);
		auto found = open_.find(handle);
		if (found != open_.end() && found->second.expired())  /* else it has been opened anew */
			open_.erase(found);
	}

	std::mutex lock_;
	std::unordered_map<std::string, std::weak_ptr<void>> open_;
};

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle)
{
	static auto *received = new Received;
	if (!trz_torch_is_handle(handle.data(), handle.size()) && handle.compare(0, IPC_PREFIX_BYTES, IPC_PREFIX) != 0)
		return native()->getIpcDevPtr(std::move(handle));
	return received->get(handle, c10::cuda::current_device());
}

void Allocator::enablePeerAccess(DeviceIndex device, DeviceIndex owner)
{
	CUDAPluggableAllocator::enablePeerAccess(device, owner);
	trz_status status = trz_enable_peer(heap_of(owner), device, true);
	if (status != TRZ_ERROR_NOT_SUPPORTED)
		check_heap(status);
}

cudaError_t Allocator::memcpyAsync(void *dst, int dst_device, const void *src, int src_device, size_t count,
                                   cudaStream_t stream, bool p2p_enabled)
{
	/* Without peer access memory has no mapping on other devices. */
	if (dst_device == src_device || p2p_enabled)
		return cudaMemcpyAsync(dst, src, count, cudaMemcpyDeviceToDevice, stream);
	return cudaMemcpyPeerAsync(dst, dst_device, src, src_device, count, stream);
}

} // namespace shim
