/* SPDX-License-Identifier: Apache-2.0
 *
 * What the look-alike libcuda.so.1 offers the other look-alikes besides the driver's own functions: libcudart,
 * libnvidia-ml and the stand-ins for cuBLAS, cuDNN and their like. Real programs never call these.
 */
#ifndef TRZ_LOOKALIKE_H
#define TRZ_LOOKALIKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOOKALIKE_API __attribute__((visibility("default")))

#define STANDIN_DRIVER LOOKALIKE_API
#include "standin/standin_driver.h"

/* Room for a library's count of its calls, by name, which is read for the report: grown atomically, 0 at first. NULL:
 * there is none left. Neither names nor array are copied. */
LOOKALIKE_API uint64_t *trz_lookalike_calls(const char *const *names, size_t count);

/* Sets who knows where in its program the calling thread is: writes up to `size` characters, the innermost frame of the
 * program first. NULL: nobody. */
typedef void lookalike_place(char *text, size_t size);
LOOKALIKE_API void trz_lookalike_on_place(lookalike_place *observer);

/* The function (a CUfunction) of a kernel by its mangled name in a fat binary or image, which is only read when
 * its parameters are first needed. NULL: no memory. Neither string nor image is copied. */
LOOKALIKE_API void *trz_lookalike_function(const void *image, const char *name);

/* Whether a launch keeps to the limits that all devices share. The driver's error for one that does not is also that of
 * other wrong values, the runtime has one of its own. */
LOOKALIKE_API int trz_lookalike_shape_fits(const unsigned grid[3], const unsigned block[3]);

/* Where a variable of registered code lies on the current device, and its size: a driver's result. */
LOOKALIKE_API int trz_lookalike_variable(const void *image, const char *name, uint64_t *address, size_t *size);

/* Whether a device may know the address: its own memory, or pinned or managed memory of the host. */
LOOKALIKE_API bool trz_lookalike_is_known_to_device(uint64_t address);

/* A variable that host and device share has been laid: from here on its memory is managed. */
LOOKALIKE_API void trz_lookalike_managed(uint64_t address, uint64_t size);

/* Says once for each name that a function is not there; returns CUDA_ERROR_NOT_SUPPORTED. */
LOOKALIKE_API int trz_lookalike_missing(const char *name);

/* Records that memory ran out in a call of another library. */
LOOKALIKE_API void trz_lookalike_oom(const char *call, uint64_t bytes);

/* Sets the function that is called at the process's first short read from the device that gives 0 instead of bytes, in
 * the thread that reads, with no lock held: it says so to the user, who has not been told yet, where `is_news`. NULL:
 * the driver says so. */
typedef void lookalike_blank_read(uint64_t bytes, int is_news);
LOOKALIKE_API void trz_lookalike_on_blank_read(lookalike_blank_read *observer);

/* Opens the machine for queries by the devices' own numbers, which no CUDA_VISIBLE_DEVICES hides: the number of devices
 * it has. */
LOOKALIKE_API int trz_lookalike_open(void);

/* All devices are of one kind: its name, and those attributes that its profile tells. Each has a UUID. */
LOOKALIKE_API const char *trz_lookalike_title(void);
LOOKALIKE_API int trz_lookalike_attribute(int attribute);
LOOKALIKE_API void trz_lookalike_uuid(int number, unsigned char uuid[16]);

/* For --record. A request that PyTorch's allocator was asked for: an enum sim_recorded_kind. What the allocator calls
 * of the driver, from `enter` until it leaves, is not the program's; from the first time on requests to the driver no
 * longer count. What cannot be followed ends the recording. */
LOOKALIKE_API void trz_lookalike_request(int kind, int device, uint64_t address, uint64_t size, void *stream,
                                         uint32_t pool);
LOOKALIKE_API void trz_lookalike_inside(bool enter);
LOOKALIKE_API void trz_lookalike_stop_recording(const char *why);

/* A new descriptor that stands for the machine, for TERRAZZO_SIM_MACHINE_FD of other processes; -1: none left. It is
 * closed on exec unless the caller says otherwise. cuInit or trz_lookalike_open comes first. */
LOOKALIKE_API int trz_lookalike_machine_fd(void);

/* Memory of a device, by its number, as the whole machine has taken it, and by which processes; returns the number of
 * these, of which up to `room` are written. trz_lookalike_open comes first. */
LOOKALIKE_API int trz_lookalike_memory(int number, uint64_t *total, uint64_t *used);
LOOKALIKE_API unsigned trz_lookalike_processes(int number, uint64_t *pids, uint64_t *bytes, unsigned room);

#endif
