/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator as the benchmark sees it: each file of this folder is compiled into a shared object of its own and
 * defines `bench_peer`. It uses CUDA as on any machine; the device is simulated (bench/README.md).
 */
#ifndef TRZ_BENCH_PEER_H
#define TRZ_BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Streams and events are CUDA's: CUstream, CUevent. A primary context is current. Functions that are not said to be
 * optional exist. */
struct peer {
	/* Gives host memory: it is measured for its time alone. */
	int on_host;

	/* Before all others, with the allocator's options in comparison/peer_build.py. 0: it is ready. */
	int (*open)(const char *options);
	void (*close)(void);

	/* Memory for work on `stream`; NULL: there is none. From any thread. */
	void *(*alloc)(size_t size, void *stream);

	/* Gives it back. It was allocated on `own`; `last`, most often the same, has the last work on it. From then on the
	 * memory may serve work that is enqueued on `own`, and other work once all that uses it is complete. */
	void (*free)(void *pointer, void *own, void *last);

	/* One more stream works on it. NULL: `free` waits for all work. */
	void (*record_stream)(void *pointer, void *stream);

	/* Returns to the device what nobody has. Optional. */
	void (*empty_cache)(void);

	/* Around the program's records of events and waits of streams for them, `done` not 0 where the driver did it; the
	 * end has what the beginning returned. Optional, all four or none. */
	uint64_t (*record_begin)(void *event, void *stream);
	void (*record_end)(void *event, void *stream, uint64_t token, int done);
	uint64_t (*wait_begin)(void *stream, void *event);
	void (*wait_end)(void *stream, void *event, uint64_t token, int done);

	/* Host memory of the allocator's own structures, in bytes. Optional. */
	uint64_t (*metadata)(void);
};

#define PEER_API __attribute__((visibility("default")))
extern PEER_API const struct peer bench_peer;

#ifdef __cplusplus
}
#endif

#endif
