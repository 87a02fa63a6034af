/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator as the benchmark sees it: each file of this folder defines `bench_peer`, and is compiled into a shared
 * object of its own. It uses CUDA as on any machine; the device is simulated (bench/README.md).
 */
#ifndef TRZ_BENCH_PEER_H
#define TRZ_BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Streams and events are CUDA's: CUstream, CUevent. A primary context is current. Functions are required unless their
 * comment says "Optional". */
struct peer {
	/* It gives host memory: only its time is measured. */
	int on_host;

	/* Called first, with the allocator's options in comparison/peer_build.py. 0: it is ready. */
	int (*open)(const char *options);
	void (*close)(void);

	/* Allocates for work on `stream`; NULL: there is no memory. Called from any thread. */
	void *(*alloc)(size_t size, void *stream);

	/* Frees memory of `size` bytes, as it was asked for, that was allocated on `own`; `last`, most often the same, has
	 * the last work on it. From then on the memory may serve work enqueued on `own`, and other work once all that uses
	 * it is complete. */
	void (*free)(void *pointer, size_t size, void *own, void *last);

	/* Tells that one more stream works on the memory. NULL: `free` waits for all work. */
	void (*record_stream)(void *pointer, void *stream);

	/* Returns free memory to the device. Optional. */
	void (*empty_cache)(void);

	/* Called around the program's records of events and streams' waits for them. `done` is not 0 if the driver did it;
	 * `token` is what the beginning returned. Optional, all four or none. */
	uint64_t (*record_begin)(void *event, void *stream);
	void (*record_end)(void *event, void *stream, uint64_t token, int done);
	uint64_t (*wait_begin)(void *stream, void *event);
	void (*wait_end)(void *stream, void *event, uint64_t token, int done);

	/* Bytes of host memory that the allocator's own structures take. Optional. */
	uint64_t (*metadata)(void);
};

#define PEER_API __attribute__((visibility("default")))
extern PEER_API const struct peer bench_peer;

#ifdef __cplusplus
}
#endif

#endif
