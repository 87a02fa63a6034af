/* SPDX-License-Identifier: Apache-2.0
 *
 * For allocators that free in one stream's order and know of no other users: before such a free, the stream waits for
 * every other one that works on the memory, as a program would have to order it. Thread-safe.
 */
#ifndef TRZ_BENCH_STREAM_USERS_H
#define TRZ_BENCH_STREAM_USERS_H

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

extern "C" {
int cuEventCreate(void **event, unsigned flags);
int cuEventRecord(void *event, void *stream);
int cuStreamWaitEvent(void *stream, void *event, unsigned flags);
}

class stream_users {
	std::mutex mutex;
	std::atomic<bool> any{false};  /* spares programs of one stream the lock */
	std::unordered_map<void *, std::vector<void *>> users;
	void *event = nullptr;

public:
	void add(void *pointer, void *stream)
	{
		std::lock_guard<std::mutex> guard(mutex);
		any = true;
		auto &streams = users[pointer];
		if (std::find(streams.begin(), streams.end(), stream) == streams.end())
			streams.push_back(stream);
	}

	void order_before(void *stream, void *pointer)
	{
		if (!any)
			return;
		std::lock_guard<std::mutex> guard(mutex);
		auto found = users.find(pointer);
		if (found == users.end())
			return;
		if (!event)
			cuEventCreate(&event, 2);
		for (void *user : found->second) {
			if (user == stream)
				continue;
			cuEventRecord(event, user);
			cuStreamWaitEvent(stream, event, 0);
		}
		users.erase(found);
	}
};

#endif
