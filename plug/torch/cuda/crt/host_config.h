/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of nvcc's checks of the host compiler, which do not concern a program without device code (host_defines.h).
 */
