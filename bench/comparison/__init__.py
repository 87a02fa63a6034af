# SPDX-License-Identifier: Apache-2.0
"""What `make bench` runs: allocators, workloads, tables and plots (bench/README.md)."""
