/* SPDX-License-Identifier: Apache-2.0
 *
 * That driver_cuda keeps the contract on this machine's GPU. Skipped without a GPU. A case that passes here is
 * confirmed: write the GPU and the driver into its note.
 *
 *     test_contract_gpu [PATTERN]
 *
 * runs the cases whose names match PATTERN, with * and ?: a case that hangs can be left out.
 */
#include <stdio.h>

#include "tests/contract/contract.h"

int main(int argc, char **argv)
{
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	const trz_driver *driver = NULL;
	const struct contract_ops *ops = contract_cuda_ops();
	if (!ops || trz_driver_cuda(&driver) != TRZ_OK) {
		printf("skipped: %s\n", ops ? trz_last_error() : "no libcuda.so.1");
		return 77;
	}
	return contract_run("driver_cuda on this machine's GPU", driver, ops, NULL) != 0;
}
