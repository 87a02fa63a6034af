/* SPDX-License-Identifier: Apache-2.0
 *
 * CUPTI: there is nothing to profile. PyTorch's profiler then records the host's side only.
 */
#include <stdint.h>

#include "standin.h"

enum { NOT_SUPPORTED = 27 };

int cuptiGetVersion(uint32_t *version)
{
	*version = STANDIN_CUDA_MAJOR * 10000 + STANDIN_CUDA_MINOR * 100;
	return 0;
}

int cuptiGetResultString(int status, const char **text)
{
	*text = status ? "refused by terrazzo's stand-in for CUPTI" : "CUPTI_SUCCESS";
	return 0;
}

int cuptiSubscribe(void **subscriber, void *callback, void *data)
{
	(void)callback, (void)data;
	*subscriber = NULL;
	return standin_refuse("cuptiSubscribe", "times of the simulated device are not those of a real one", NOT_SUPPORTED);
}

int cuptiActivityEnable(int kind)
{
	(void)kind;
	return standin_refuse("cuptiActivityEnable", "times of the simulated device are not those of a real one",
	                      NOT_SUPPORTED);
}
