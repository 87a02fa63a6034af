/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that training or inference of a transformer takes, by formula. A formula knows nothing of the program: it
 * gives the order of magnitude, before there is a program that `terrazzo sim` could run.
 */
#ifndef TRZ_CLI_ESTIMATE_H
#define TRZ_CLI_ESTIMATE_H

#include <stdbool.h>

enum estimate_optimizer { ESTIMATE_ADAMW, ESTIMATE_ADAMW8BIT, ESTIMATE_ADAFACTOR, ESTIMATE_MOMENTUM, ESTIMATE_SGD };
enum estimate_states { ESTIMATE_STATES_AS_WEIGHTS, ESTIMATE_STATES_FP32, ESTIMATE_STATES_MASTER };

/* A figure that does not matter to the model is 0. Counts and bytes are doubles, since they may be large. */
struct estimate_model {
	double params;
	double trainable;        /* of params */
	double weight_bytes;     /* of one parameter */
	double batch, seq, layers, hidden, heads, kv_heads, vocabulary;
	enum estimate_optimizer optimizer;
	enum estimate_states states;
	bool checkpointing, flash, inference;
	double context_bytes;    /* of the device, outside the allocator */
};

enum { ESTIMATE_TERMS = 9 };

struct estimate_term {
	const char *name;     /* also its key in the JSON */
	const char *formula;  /* for people */
	double bytes;
};

struct estimate {
	struct estimate_term terms[ESTIMATE_TERMS];
	int count;
	const char *peak_at;      /* when the most is held */
	double allocated_bytes;   /* what the allocator holds then */
	double device_bytes;      /* the same with the context */
};

void estimate_run(const struct estimate_model *model, struct estimate *out);

#endif
