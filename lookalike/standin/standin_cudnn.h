/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two interfaces of cuDNN's stand-in share.
 */
#ifndef TRZ_STANDIN_CUDNN_H
#define TRZ_STANDIN_CUDNN_H

enum { WORKSPACE = 32 << 20 };

#endif
