/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stand-ins for CUDA's libraries ask of the driver: a context, work on a stream, results for the host.
 */
#include "driver_lookalike.h"

int trz_lookalike_bind(void)
{
	cuda_result result = look.sim ? TRZ_CUDA_SUCCESS : cuInit(0);
	if (result == TRZ_CUDA_SUCCESS && !look_bind())
		result = TRZ_CUDA_ERROR_INVALID_CONTEXT;
	return result;
}

bool trz_lookalike_counts_contexts(void)
{
	return look.overhead_bytes > 0;
}

int trz_lookalike_library_call(void *stream, const char *name, const uint64_t *words, size_t count)
{
	LOOK_NEED(!look.sim || !sim_called_back(look.sim), NOT_PERMITTED);
	cuda_result result = trz_lookalike_bind();
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	trz_context context = look_stream_context(stream);
	__atomic_fetch_add(&look_live.library_calls, 1, __ATOMIC_RELAXED);
	const struct sim_words arguments = {words, count, count, false};
	look_note_work(context, stream);
	return look_enqueued(sim_touch(look.sim, context, stream, arguments, name, look.kernel_ns));
}

int trz_lookalike_library_result(void *stream, size_t bytes)
{
	cuda_result result = cuStreamSynchronize(stream);
	if (result == TRZ_CUDA_SUCCESS)
		look_blank_read(bytes);
	return result;
}
