/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN: handles, descriptors, convolutions by the older interface. The workspace of a convolution is invented:
 * WORKSPACE bytes for every one. Versions come from the requirements of the PyTorch that is set up.
 */
#include "standin_cudnn.h"

#include <stdio.h>
#include <stdlib.h>

#include "standin.h"

STANDIN_HANDLE(cudnnCreate, cudnnDestroy)
STANDIN_DESCRIPTOR(cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor)
STANDIN_DESCRIPTOR(cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor)
STANDIN_DESCRIPTOR(cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor)
STANDIN_DESCRIPTOR(cudnnCreatePoolingDescriptor, cudnnDestroyPoolingDescriptor)
STANDIN_DESCRIPTOR(cudnnCreateDropoutDescriptor, cudnnDestroyDropoutDescriptor)
STANDIN_DESCRIPTOR(cudnnCreateCTCLossDescriptor, cudnnDestroyCTCLossDescriptor)
STANDIN_DESCRIPTOR(cudnnCreateSpatialTransformerDescriptor, cudnnDestroySpatialTransformerDescriptor)

STANDIN_STREAM(cudnnSetStream, cudnnGetStream)

size_t cudnnGetVersion(void)
{
	return STANDIN_MAJOR * 10000 + STANDIN_MINOR * 100 + STANDIN_PATCH;
}

size_t cudnnGetCudartVersion(void)
{
	return STANDIN_CUDA_MAJOR * 1000 + STANDIN_CUDA_MINOR * 10;
}

STANDIN_PROPERTY(cudnnGetProperty)

const char *cudnnGetErrorString(int status)
{
	return status ? "refused by terrazzo's stand-in for cuDNN" : "CUDNN_STATUS_SUCCESS";
}

void cudnnGetLastErrorString(char *text, size_t size)
{
	if (size > 0)
		snprintf(text, size, "refused by terrazzo's stand-in for cuDNN");
}

/* ---- convolutions ---- */

/* cudnnConvolution*AlgoPerf_t, alike for the three directions. */
struct performance {
	int algorithm;
	int status;
	float time;
	size_t memory;
	int determinism;
	int math;
	int reserved[3];
};

static int one_algorithm(int wanted, int *found, struct performance *results)
{
	*found = wanted > 0;
	if (*found)
		*results = (struct performance){ .algorithm = 1, .time = 0.1f, .memory = WORKSPACE, .determinism = 1 };
	return 0;
}

#define ALGORITHM(name) \
	int name(void *handle, void *a, void *b, void *c, void *d, int wanted, int *found, struct performance *results) \
	{ (void)handle, (void)a, (void)b, (void)c, (void)d; return one_algorithm(wanted, found, results); }
#define FIND_ALGORITHM(name) \
	int name(void *handle, void *a, void *ap, void *b, void *bp, void *c, void *d, void *dp, int wanted, int *found, \
	         struct performance *results, void *work, size_t bytes) \
	{ (void)handle, (void)a, (void)ap, (void)b, (void)bp, (void)c, (void)d, (void)dp, (void)work, (void)bytes; \
	  return one_algorithm(wanted, found, results); }

ALGORITHM(cudnnGetConvolutionForwardAlgorithm_v7)
ALGORITHM(cudnnGetConvolutionBackwardDataAlgorithm_v7)
ALGORITHM(cudnnGetConvolutionBackwardFilterAlgorithm_v7)
ALGORITHM(cudnnFindConvolutionForwardAlgorithm)
ALGORITHM(cudnnFindConvolutionBackwardDataAlgorithm)
ALGORITHM(cudnnFindConvolutionBackwardFilterAlgorithm)
FIND_ALGORITHM(cudnnFindConvolutionForwardAlgorithmEx)
FIND_ALGORITHM(cudnnFindConvolutionBackwardDataAlgorithmEx)
FIND_ALGORITHM(cudnnFindConvolutionBackwardFilterAlgorithmEx)
