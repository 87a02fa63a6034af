/* SPDX-License-Identifier: Apache-2.0
 *
 * The two tables of the size classes; tests/unit/test_sizeclass.c derives both again.
 */
#include "ground/sizeclass.h"

#define CLASS(units, cells, slots)                                                                             \
	{                                                                                                       \
		(units) * UNIT, (cells) * CELL, (slots), 65536 / (units) + 1                                    \
	}

const struct size_class size_classes[CLASS_COUNT] = {
	CLASS(1, 1, 64),
	CLASS(2, 1, 32),
	CLASS(3, 1, 21),
	CLASS(4, 1, 16),
	CLASS(5, 1, 12),
	CLASS(6, 1, 10),
	CLASS(7, 1, 9),
	CLASS(8, 1, 8),
	CLASS(10, 1, 6),
	CLASS(12, 1, 5),
	CLASS(14, 2, 9),
	CLASS(16, 1, 4),
	CLASS(20, 2, 6),
	CLASS(24, 2, 5),
	CLASS(28, 4, 9),
	CLASS(32, 2, 4),
	CLASS(40, 4, 6),
	CLASS(48, 3, 4),
	CLASS(56, 7, 8),
	CLASS(64, 4, 4),
};

#undef CLASS

const uint8_t size_class_of_units[CLASS_SIZE_MAX / UNIT + 1] = {
	0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 9, 10, 10, 11,
	11, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14, 14, 14, 15, 15, 15,
	15, 16, 16, 16, 16, 16, 16, 16, 16, 17, 17, 17, 17, 17, 17, 17,
	17, 18, 18, 18, 18, 18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 19,
	19,
};
