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

/* Counters for a library's calls, by name, for the report; 0 at first. The library adds to them atomically. Whoever
 * gives the same names gets the same counters. The names are copied. NULL: no room is left. */
LOOKALIKE_API uint64_t *trz_lookalike_calls(const char *const *names, size_t count);

/* Sets the function that tells where in its program the calling thread is: it writes up to `size` characters, the
 * program's innermost frame first. NULL: none. */
typedef void lookalike_place(char *text, size_t size);
LOOKALIKE_API void trz_lookalike_on_place(lookalike_place *observer);

/* Whether this thread's collectives bring objects of the program's, whose bytes are real up to the largest size that
 * --collective-bytes takes. Returns whether they did before. */
LOOKALIKE_API bool trz_lookalike_sends_objects(bool sends);

/* The function (a CUfunction) of a kernel by its mangled name in a fat binary or image. The image is only read when
 * the kernel's parameters are first needed. NULL: no memory. Neither name nor image is copied. */
LOOKALIKE_API void *trz_lookalike_function(const void *image, const char *name);

/* Whether this is a handle of the driver's, of a function or a kernel. */
LOOKALIKE_API bool trz_lookalike_is_function(const void *handle);

/* Whether a launch keeps to the limits that all devices share. If not, the driver's error is that for any wrong value;
 * the runtime has an error of its own. */
LOOKALIKE_API int trz_lookalike_shape_fits(const unsigned grid[3], const unsigned block[3]);

/* Where a variable of registered code lies on the current device, and its size. Returns a driver's result. */
LOOKALIKE_API int trz_lookalike_variable(const void *image, const char *name, uint64_t *address, size_t *size);

/* Whether a device may know the address: its own memory, or pinned or managed memory of the host. */
LOOKALIKE_API bool trz_lookalike_is_known_to_device(uint64_t address);

/* Marks memory as managed: a variable that host and device share lies there. */
LOOKALIKE_API void trz_lookalike_managed(uint64_t address, uint64_t size);

/* Says once for each name that a function is not there; returns CUDA_ERROR_NOT_SUPPORTED. */
LOOKALIKE_API int trz_lookalike_missing(const char *name);

/* Records that memory ran out in a call of another library. */
LOOKALIKE_API void trz_lookalike_oom(const char *call, uint64_t bytes);

/* Sets the function that is called at the process's first short read from the device that gives 0 instead of its bytes,
 * in the thread that reads, with no lock held. If `is_news`, the user has not been told yet, and the function tells
 * them. NULL: the driver does. */
typedef void lookalike_blank_read(uint64_t bytes, int is_news);
LOOKALIKE_API void trz_lookalike_on_blank_read(lookalike_blank_read *observer);

/* What is known of PyTorch's values (python/terrazzo/sim/computing.cpp).
 *   The address says which device's default stream is meant, if it is one.
 *   wait: for the stream's work. False: the stream is captured, or has failed.
 *   get: waits, then tells what a collective has brought there of what a host has sent, whatever work came later, or
 *     what this process's host has sent since the last work. False: nothing, or the stream is captured.
 *   put: from this point of the stream on, the memory holds these bytes, which count as sent by the host. This is no
 *     work of the program's, nor part of a capture.
 *   vouch: reads of the range in this thread give what lies there.
 *   answer: short reads in this thread give this number, whatever lies there. NULL: no more. */
LOOKALIKE_API bool trz_lookalike_wait(uint64_t address, void *stream);
LOOKALIKE_API bool trz_lookalike_get(uint64_t address, void *bytes, uint64_t size, void *stream);
LOOKALIKE_API void trz_lookalike_put(uint64_t address, const void *bytes, uint64_t size, void *stream);
LOOKALIKE_API void trz_lookalike_vouch(uint64_t address, uint64_t size);
LOOKALIKE_API void trz_lookalike_answer(const uint64_t *answer);

/* Opens the machine for queries by the devices' own numbers, whatever CUDA_VISIBLE_DEVICES hides. Returns the number of
 * devices. */
LOOKALIKE_API int trz_lookalike_open(void);

/* The name of the devices, which are all alike, the attributes that their profile tells, and the UUID of each. */
LOOKALIKE_API const char *trz_lookalike_title(void);
LOOKALIKE_API int trz_lookalike_attribute(int attribute);
LOOKALIKE_API void trz_lookalike_uuid(int number, unsigned char uuid[16]);

/* For --record. A request to PyTorch's allocator; `kind`: an enum sim_recorded_kind. The allocator's own calls of the
 * driver, from `enter` until it leaves, are not the program's; after the first of either, requests to the driver no
 * longer count. What cannot be followed ends the recording. */
LOOKALIKE_API void trz_lookalike_request(int kind, int device, uint64_t address, uint64_t size, void *stream,
                                         uint32_t pool);
LOOKALIKE_API void trz_lookalike_inside(bool enter);
LOOKALIKE_API void trz_lookalike_stop_recording(const char *why);

/* A new descriptor that stands for the machine, for TERRAZZO_SIM_MACHINE_FD of other processes; -1: none left. It is
 * closed on exec unless the caller says otherwise. cuInit or trz_lookalike_open comes first. */
LOOKALIKE_API int trz_lookalike_machine_fd(void);

/* A device's memory, by its number, that all processes of the machine use; and by process: writes up to `room` of them
 * and returns how many there are. trz_lookalike_open comes first. */
LOOKALIKE_API int trz_lookalike_memory(int number, uint64_t *total, uint64_t *used);
LOOKALIKE_API unsigned trz_lookalike_processes(int number, uint64_t *pids, uint64_t *bytes, unsigned room);

#endif
