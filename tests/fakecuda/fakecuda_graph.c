/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures and graphs. A graph of the simulator can be launched as it is, so an instance is the graph once more
 * and both live until the last of them has been destroyed.
 */
#include "fakecuda.h"

#include <pthread.h>
#include <stdlib.h>

/* What a program holds as graph and as its instances. */
struct fake_graph {
	sim_graph graph;
	trz_context context;
	int holders;  /* under the lock below */
};

static pthread_mutex_t holders_lock = PTHREAD_MUTEX_INITIALIZER;

cuda_result cuStreamBeginCapture_v2(void *stream, int mode)
{
	return FAKE_SIM_HERE(sim_capture_begin, stream, (trz_capture_mode)mode);
}

cuda_result cuStreamEndCapture(void *stream, void **graph)
{
	sim_graph captured = 0;
	*graph = NULL;
	cuda_result result = FAKE_SIM_HERE(sim_capture_end, stream, &captured);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	struct fake_graph *g = malloc(sizeof *g);
	if (!g) {
		FAKE_SIM_HERE(sim_graph_destroy, captured);
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	}
	*g = (struct fake_graph){.graph = captured, .context = fake_context(), .holders = 1};
	*graph = g;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphInstantiateWithFlags(void **instance, void *graph, unsigned long long flags)
{
	struct fake_graph *g = graph;
	if (flags != 0)
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&holders_lock);
	g->holders++;
	pthread_mutex_unlock(&holders_lock);
	*instance = g;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphLaunch(void *instance, void *stream)
{
	const struct fake_graph *g = instance;
	return FAKE_SIM_HERE(sim_graph_launch, g->graph, stream);
}

cuda_result cuGraphDestroy(void *graph)
{
	struct fake_graph *g = graph;
	pthread_mutex_lock(&holders_lock);
	bool last = --g->holders == 0;
	pthread_mutex_unlock(&holders_lock);
	if (!last)
		return TRZ_CUDA_SUCCESS;
	cuda_result result = FAKE_SIM(sim_graph_destroy, g->context, g->graph);
	free(g);
	return result;
}

cuda_result cuGraphExecDestroy(void *instance)
{
	return cuGraphDestroy(instance);
}
