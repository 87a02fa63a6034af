/* SPDX-License-Identifier: Apache-2.0
 *
 * A library whose constructor runs a function of the program.
 */
void in_constructor(void);

__attribute__((constructor)) static void construct(void)
{
	in_constructor();
}
