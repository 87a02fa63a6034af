# SPDX-License-Identifier: Apache-2.0
"""Programs on a simulated CUDA device, without a GPU."""
