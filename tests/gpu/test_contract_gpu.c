/* SPDX-License-Identifier: Apache-2.0
 *
 * That driver_cuda keeps the contract on this machine's GPU. Skipped without a GPU. A case that passes here is
 * confirmed: write the GPU and the driver into its note.
 */
#include <stdio.h>

#include "tests/contract/contract.h"

int main(void)
{
	const trz_driver *driver = NULL;
	const struct contract_ops *ops = contract_cuda_ops();
	if (!ops || trz_driver_cuda(&driver) != TRZ_OK) {
		printf("skipped: %s\n", ops ? trz_last_error() : "no libcuda.so.1");
		return 77;
	}
	return contract_run("driver_cuda on this machine's GPU", driver, ops, NULL) != 0;
}
