/* SPDX-License-Identifier: Apache-2.0
 *
 * The harness's program; its code is in the libcuda.so.1 beside it.
 */
int bench_harness(int argc, char **argv);

int main(int argc, char **argv)
{
	return bench_harness(argc, argv);
}
