/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops that keep what they make, as evaluation with graphs does: at a failure in one, the report calls it a leak; it
 * does not for what only looks like such a loop.
 */
#include <stdio.h>

#include "observe/period.h"
#include "rig.h"

enum { KEPT = 4000, MOST = 100, STEPS = 60 };

/* ---- call stacks, as of a program with PyTorch ---- */

#define CALL {.filename = "/p/site-packages/torch/nn/modules/module.py", .name = "_call_impl", .line = 7}
#define LAYER {.filename = "/p/site-packages/torch/nn/modules/linear.py", .name = "forward", .line = 9}
#define EVALUATE {.filename = "/srv/train.py", .name = "evaluate", .line = 11}
#define LATER {.filename = "/srv/train.py", .name = "<module>", .line = 60}
#define MAIN {.filename = "/srv/train.py", .name = "<module>", .line = 50}

enum spot { BATCH = 1, OUTPUT, FORWARD, LINEAR, WEIGHTS, MORE_WEIGHTS, GRADIENT, AUTOGRAD, LINEAR_LATER, BATCH_LATER,
	        ADAM, LINES = 1000 };  /* from here on: one line of the program each */

static const trz_frame stacks[][7] = {
	[BATCH] = {{.filename = "/srv/train.py", .name = "evaluate", .line = 10}, MAIN},
	[OUTPUT] = {{.filename = "/srv/train.py", .name = "evaluate", .line = 12}, MAIN},
	[FORWARD] = {{.filename = "/srv/model.py", .name = "forward", .line = 3}, CALL, MAIN},
	[LINEAR] = {LAYER, CALL, {.filename = "/srv/model.py", .name = "forward", .line = 4}, CALL, EVALUATE, MAIN},
	[WEIGHTS] = {{.filename = "/p/site-packages/torch/nn/modules/linear.py", .name = "__init__", .line = 5}, MAIN},
	[MORE_WEIGHTS] = {{.filename = "/p/site-packages/torch/nn/modules/linear.py", .name = "__init__", .line = 6}, MAIN},
	[AUTOGRAD] = {{.filename = "libtorch_cpu.so", .name = "torch::autograd::generated::MmBackward0::apply"},
	              {.filename = "libtorch_cpu.so", .name = "torch::autograd::Engine::thread_main"}},
	/* The same loops, called from another line. */
	[LINEAR_LATER] = {LAYER, CALL, {.filename = "/srv/model.py", .name = "forward", .line = 4}, CALL, EVALUATE, LATER},
	[BATCH_LATER] = {{.filename = "/srv/train.py", .name = "evaluate", .line = 10}, LATER},
	[ADAM] = {{.filename = "/p/site-packages/torch/optim/adam.py", .name = "_init_group", .line = 3}, MAIN},
	[GRADIENT] = {{.filename = "/srv/train.py", .name = "train", .line = 20}, MAIN},
};

static enum spot spot;

static uint64_t stack_of(void *user)
{
	(void)user;
	return spot;
}

static size_t named_of_autograd;  /* the most levels that were asked for */

/* Heaps ask for texts with no lock held, so that whoever tells them may ask the heap. */
static struct {
	trz_heap *heap;
	size_t answered, locked;
} asked;

static bool is_free(pthread_mutex_t *lock)
{
	bool taken = pthread_mutex_trylock(lock) == 0;
	if (taken)
		pthread_mutex_unlock(lock);
	return taken;
}

/* Not if it would wait for ever. */
static void ask_for_growth(void)
{
	trz_heap *h = asked.heap;
	size_t count;
	if (!is_free(&h->steps.lock) || !is_free(&h->oom_lock) || !is_free(&h->growth_lock)) {
		asked.locked++;
		return;
	}
	assert_ok(trz_growth(h, NULL, 0, &count));
	asked.answered++;
}

static size_t text_of(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	const trz_frame *stack = stacks[id < LINES ? id : OUTPUT];
	size_t count = 0;
	(void)user;
	ask_for_growth();
	if (id == AUTOGRAD && capacity > named_of_autograd)
		named_of_autograd = capacity;
	for (; count < capacity && stack[count].filename; count++)
		frames[count] = stack[count];
	return count;
}

/* ---- programs ---- */

struct program {
	struct rig rig;
	void *kept[KEPT];
	size_t count;
	char text[1 << 16];
	size_t used;
};

static void *take(struct program *p, enum spot at, size_t size)
{
	spot = at;
	return rig_alloc(&p->rig, size, NULL);
}

static void keep(struct program *p, enum spot at, size_t size)
{
	assert_true(p->count < KEPT);
	p->kept[p->count++] = take(p, at, size);
}

static bool add(void *user, const char *text, size_t size)
{
	struct program *p = user;
	assert_true(p->used + size < sizeof p->text);
	memcpy(p->text + p->used, text, size);
	p->used += size;
	return true;
}

/* Fails at more than there is, frees all, and returns whether the report called it a leak. */
static bool ends_at_as_leak(struct program *p, size_t size)
{
	void *q;
	spot = LINEAR;
	assert_int_equal(trz_alloc(p->rig.heap, size, 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY);
	assert_ok(trz_report(p->rig.heap, TRZ_REPORT_FAILURE | TRZ_REPORT_JSON, add, p));
	for (size_t i = 0; i < p->count; i++)
		rig_free(&p->rig, p->kept[i]);
	rig_sync(&p->rig);
	rig_close(&p->rig);
	assert_true(asked.answered > 0);
	assert_int_equal(asked.locked, 0);
	assert_non_null(strstr(p->text, "{\"verdict\":\""));
	return strstr(p->text, "\"verdict\":\"leak\"");
}

static bool ends_as_leak(struct program *p)
{
	return ends_at_as_leak(p, MIB(3900));
}

/* A step with its backward pass, as the optimizer's hook tells it. */
static void train(struct program *p)
{
	void *batch = take(p, BATCH, MIB(1)), *outputs[8];
	for (int i = 0; i < 8; i++)
		outputs[i] = take(p, LINEAR, MIB(2));
	for (int i = 0; i < 8; i++) {
		rig_free(&p->rig, take(p, GRADIENT, MIB(1)));
		rig_free(&p->rig, outputs[i]);
	}
	rig_free(&p->rig, batch);
	assert_ok(trz_step(p->rig.heap));
}

static void train_for(struct program *p, int steps)
{
	for (int step = 0; step < steps; step++)
		train(p);
}

/* Layers whose outputs stay for a backward pass that never comes. */
static void evaluate_with(struct program *p, int layers)
{
	keep(p, BATCH, MIB(1));
	for (int i = 0; i < layers; i++) {
		keep(p, LINEAR, MIB(3));
		rig_free(&p->rig, take(p, LINEAR, MIB(1)));
	}
	keep(p, OUTPUT, KIB(64));
}

static void evaluate_for(struct program *p, int steps)
{
	for (int step = 0; step < steps; step++)
		evaluate_with(p, 8);
}

/* A copy of another length takes the place of what there was. */
static void copy(struct program *p, enum spot at, void **block, size_t size)
{
	void *other = take(p, at, size);
	if (*block)
		rig_free(&p->rig, *block);
	*block = other;
}

static void keep_all(struct program *p, void **blocks, int count)
{
	for (int i = 0; i < count; i++)
		p->kept[p->count++] = blocks[i];
}

/* With a model of so many layers. */
static void begin(struct program *p, int layers)
{
	*p = (struct program){.rig = rig_open(GIB(4), "oom_report:off")};
	p->rig.heap->period.step_ns_least = 0;
	asked.heap = p->rig.heap;
	asked.answered = asked.locked = 0;
	assert_ok(trz_set_site_callback(p->rig.heap, stack_of, text_of, NULL));
	for (int i = 0; i < layers; i++)
		keep(p, WEIGHTS, MIB(1));
}

/* ---- what is a leak ---- */

static void test_evaluation_that_keeps_graphs(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 8);
	evaluate_for(&p, STEPS);
	assert_true(ends_as_leak(&p));
}

static void test_evaluation_after_steps_that_were_told(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 8);
	train_for(&p, 30);
	evaluate_for(&p, STEPS);
	assert_true(ends_as_leak(&p));
}

/* Without gradients: a layer frees all that it makes, so the heap is as level from layer to layer as within a step. The
 * loop's own steps count, in which one output stays, not the layers'. */
static void predict(struct program *p, int layers, int steps)
{
	for (int step = 0; step < steps; step++) {
		void *batch = take(p, BATCH, MIB(1));
		for (int i = 0; i < layers; i++) {
			void *work = take(p, LINEAR, MIB(24));
			rig_free(&p->rig, take(p, LINEAR, MIB(6)));
			rig_free(&p->rig, work);
		}
		keep(p, FORWARD, MIB(16));
		rig_free(&p->rig, batch);
	}
}

static void test_predictions_that_are_kept(void **state)
{
	(void)state;
	static struct program p;
	for (int layers = 4; layers <= 48; layers *= 2) {
		begin(&p, layers);
		predict(&p, layers, MOST);
		assert_true(ends_as_leak(&p));
		if (!strstr(p.text, "\"per_step\":16777216,"))
			fail_msg("%d layers: %s", layers, strstr(p.text, "\"growth\""));
	}
}

/* In few steps, as with most models: a third as many as it has layers. */
static void test_evaluation_of_a_deep_model(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 60);
	for (int step = 0; step < 20; step++)
		evaluate_with(&p, 60);
	assert_true(ends_at_as_leak(&p, MIB(500)));
}

/* What the program itself makes of a model's outputs: sessions, each copied as it gets longer, and never given up. */
static void test_sessions_that_are_never_given_up(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 4);
	for (int step = 0; step < 2 * MOST; step++) {
		void *session = NULL;
		for (size_t turn = 1; turn <= 4; turn++) {
			void *outputs[3];
			for (int i = 0; i < 3; i++)
				outputs[i] = take(&p, LINEAR, MIB(4));
			copy(&p, OUTPUT, &session, turn * MIB(4));
			for (int i = 0; i < 3; i++)
				rig_free(&p.rig, outputs[i]);
		}
		p.kept[p.count++] = session;
	}
	assert_true(ends_as_leak(&p));
}

/* The carried state's graph grows by what each step makes; what comes between is freed. */
static void test_a_state_that_is_carried_on(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 2);
	for (int step = 0; step < 2 * MOST; step++) {
		keep(&p, BATCH, MIB(8));
		void *a = take(&p, LINEAR, MIB(8)), *b = take(&p, LINEAR, MIB(8));
		keep(&p, FORWARD, MIB(8));
		rig_free(&p.rig, a);
		rig_free(&p.rig, b);
	}
	assert_true(ends_as_leak(&p));
}

/* Of each sample, more than a model has weights. */
static void test_gradients_of_samples_that_are_kept(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 4);
	for (int sample = 0; sample < STEPS; sample++) {
		rig_free(&p.rig, take(&p, LINEAR, MIB(400)));
		for (int i = 0; i < 4; i++)
			keep(&p, AUTOGRAD, MIB(8));
	}
	assert_true(ends_as_leak(&p));
}

/* ---- what is none ---- */

/* Layers whose outputs alone stay come and go like steps. */
static void test_forward_of_a_checkpointed_model(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, MOST);
	for (int layer = 0; layer < STEPS; layer++) {
		rig_free(&p.rig, take(&p, LINEAR, MIB(400)));
		keep(&p, FORWARD, MIB(40));
	}
	assert_false(ends_as_leak(&p));
}

/* And backward, where layers of several places leave gradients of one operation. */
static void test_backward_of_a_checkpointed_model(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, STEPS);
	for (int i = 0; i < STEPS; i++)
		keep(&p, MORE_WEIGHTS, MIB(1));
	for (int i = 0; i < 2 * STEPS; i++) {
		rig_free(&p.rig, take(&p, LINEAR, MIB(400)));
		keep(&p, AUTOGRAD, MIB(16));
	}
	assert_false(ends_as_leak(&p));
}

/* A program that goes back to the steps that it tells keeps no more. */
static void test_evaluation_that_is_over(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 8);
	train_for(&p, 30);
	evaluate_for(&p, STEPS);
	train_for(&p, 30);
	assert_false(ends_as_leak(&p));
}

/* Frees what has been kept but for the first `left`. */
static void give_up(struct program *p, size_t left)
{
	while (p->count > left)
		rig_free(&p->rig, p->kept[--p->count]);
}

/* Two epochs, whose evaluations give up what they keep; the third one's is to come. */
static void train_and_evaluate(struct program *p)
{
	for (int epoch = 0; epoch < 2; epoch++) {
		size_t before = p->count;
		train_for(p, 30);
		evaluate_for(p, STEPS / 3);
		give_up(p, before);
	}
	train_for(p, 30);
}

/* What an evaluation keeps is given up at its end, also by one that is longer than those before. */
static void test_a_longer_evaluation(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 8);
	train_and_evaluate(&p);
	evaluate_for(&p, STEPS);
	assert_false(ends_as_leak(&p));
	assert_non_null(strstr(p.text, "\"name\":\"collect_less\""));
}

/* The same, called from another line. */
static void test_a_longer_evaluation_from_elsewhere(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 8);
	train_and_evaluate(&p);
	for (int step = 0; step < STEPS; step++) {
		keep(&p, BATCH_LATER, MIB(1));
		for (int i = 0; i < 8; i++) {
			keep(&p, LINEAR_LATER, MIB(3));
			rig_free(&p.rig, take(&p, LINEAR_LATER, MIB(1)));
		}
	}
	assert_false(ends_as_leak(&p));
	assert_non_null(strstr(p.text, "\"name\":\"collect_less\""));
}

/* Half of it is not given up, so that it is a list that outlives the evaluations. */
static void test_evaluations_that_keep_for_good(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 8);
	for (int epoch = 0; epoch < 2; epoch++) {
		train_for(&p, 30);
		evaluate_for(&p, STEPS / 3);
		give_up(&p, p.count / 2);
	}
	train_for(&p, 30);
	evaluate_for(&p, STEPS);
	assert_true(ends_as_leak(&p));
}

/* From outside of any model, through as many blocks as have weights. */
static void test_one_pass_through_layers(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, STEPS);
	for (int block = 0; block < STEPS; block++) {
		keep(&p, LINEAR, MIB(8));
		rig_free(&p.rig, take(&p, LINEAR, MIB(8)));
		keep(&p, OUTPUT, MIB(8));
	}
	assert_false(ends_as_leak(&p));
}

static void test_one_pass_inside_a_model(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 8);
	for (int block = 0; block < STEPS; block++) {
		keep(&p, LINEAR, MIB(8));
		keep(&p, FORWARD, MIB(8));
	}
	assert_false(ends_as_leak(&p));
}

static void test_data_that_are_loaded(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 8);
	for (int step = 0; step < STEPS; step++) {
		rig_free(&p.rig, take(&p, BATCH, MIB(8)));
		keep(&p, OUTPUT, MIB(32));
	}
	assert_false(ends_as_leak(&p));
}

static void keep_of_lines(struct program *p, int first, int end)
{
	for (int i = first; i < end; i++)
		keep(p, (enum spot)(LINES + i), KIB(64));
}

/* Weights that are unfrozen one by one get gradients and an optimizer's state; one more of each is too many. The
 * program keeps blocks of so many other lines, half of them older than the weights. */
static bool unfreeze(struct program *p, size_t of_each, int lines)
{
	begin(p, 0);
	keep_of_lines(p, 0, lines / 2);
	for (int i = 0; i < STEPS; i++)
		keep(p, WEIGHTS, MIB(1));
	keep_of_lines(p, lines / 2, lines);
	for (size_t step = 0; step < STEPS; step++) {
		train(p);
		for (size_t i = 0; i < of_each; i++)
			keep(p, ADAM, MIB(24));
	}
	return ends_as_leak(p);
}

static void test_weights_that_are_unfrozen_in_turn(void **state)
{
	(void)state;
	static struct program p;
	assert_false(unfreeze(&p, 1, 0));
	assert_true(unfreeze(&p, 2, 0));
}

/* As large programs have. */
static void test_weights_that_are_unfrozen_among_many_sites(void **state)
{
	(void)state;
	static struct program p;
	assert_false(unfreeze(&p, 1, 300));
	assert_true(unfreeze(&p, 2, 300));
	assert_false(unfreeze(&p, 1, 1000));
	assert_true(unfreeze(&p, 2, 1000));
}

static void test_layers_that_are_made(void **state)
{
	(void)state;
	static struct program p;
	begin(&p, 0);
	for (int layer = 0; layer < STEPS; layer++) {
		rig_free(&p.rig, take(&p, BATCH, MIB(8)));
		keep(&p, WEIGHTS, MIB(32));
	}
	assert_false(ends_as_leak(&p));
}

/* A new batch comes before the last one goes, each larger. */
static void test_a_batch_that_grows(void **state)
{
	(void)state;
	static struct program p;
	void *batch = NULL, *output = NULL;
	begin(&p, 8);
	for (size_t step = 1; step <= 2 * MOST; step++) {
		copy(&p, BATCH, &batch, step * MIB(1));
		for (int i = 0; i < 8; i++)
			copy(&p, LINEAR, &output, step * MIB(1));
	}
	keep_all(&p, (void *[]){batch, output}, 2);
	assert_false(ends_as_leak(&p));
}

/* A recurrent model over a long sequence: each turn has its workspace and leaves its state, so that turns are taken for
 * steps. `inputs`: made outside of the model for every second of them, so that they are steps. */
static bool turn(struct program *p, bool inputs)
{
	begin(p, 4);
	for (int i = 0; i < 2 * MOST; i++) {
		if (inputs && i % 2)
			rig_free(&p->rig, take(p, BATCH, MIB(8)));
		rig_free(&p->rig, take(p, LINEAR, MIB(400)));
		keep(p, FORWARD, MIB(16));
	}
	return ends_as_leak(p);
}

static void test_turns_of_a_recurrent_model(void **state)
{
	(void)state;
	static struct program p;
	assert_false(turn(&p, false));
	assert_true(turn(&p, true));
}

/* With no step told: turns of a conversation, whose layers' caches are copied into longer ones. */
static void test_caches_of_a_loop_that_is_recognised(void **state)
{
	(void)state;
	static struct program p;
	void *cache[16] = {NULL};
	begin(&p, 16);
	for (size_t turn = 1; turn <= MOST; turn++)
		for (int i = 0; i < 16; i++) {
			for (int k = 0; k < 3; k++)
				rig_free(&p.rig, take(&p, LINEAR, MIB(8)));
			copy(&p, OUTPUT, &cache[i], turn * MIB(1));
		}
	keep_all(&p, cache, 16);
	assert_false(ends_as_leak(&p));
}

/* After training, each layer's keys are copied into a longer block at each token. */
static void test_a_cache_that_is_copied(void **state)
{
	(void)state;
	static struct program p;
	void *cache[4] = {NULL};
	begin(&p, 4);
	train_for(&p, 30);
	for (size_t token = 1; token <= MOST; token++) {
		keep(&p, BATCH, KIB(64));
		for (int i = 0; i < 4; i++)
			copy(&p, LINEAR, &cache[i], token * MIB(4));
	}
	keep_all(&p, cache, 4);
	assert_false(ends_as_leak(&p));
}

/* The linker takes up to a millisecond for each level of a native stack. */
static void test_native_stacks_are_not_named(void **state)
{
	(void)state;
	static struct program p;
	named_of_autograd = 0;
	begin(&p, 8);
	for (int step = 0; step < STEPS; step++) {
		evaluate_with(&p, 4);
		keep(&p, AUTOGRAD, MIB(1));
	}
	assert_int_equal(named_of_autograd, 1);
	assert_true(ends_as_leak(&p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gradients_of_samples_that_are_kept),
		cmocka_unit_test(test_forward_of_a_checkpointed_model),
		cmocka_unit_test(test_backward_of_a_checkpointed_model),
		cmocka_unit_test(test_evaluation_that_keeps_graphs),
		cmocka_unit_test(test_evaluation_after_steps_that_were_told),
		cmocka_unit_test(test_evaluation_of_a_deep_model),
		cmocka_unit_test(test_predictions_that_are_kept),
		cmocka_unit_test(test_sessions_that_are_never_given_up),
		cmocka_unit_test(test_a_state_that_is_carried_on),
		cmocka_unit_test(test_evaluation_that_is_over),
		cmocka_unit_test(test_a_longer_evaluation),
		cmocka_unit_test(test_a_longer_evaluation_from_elsewhere),
		cmocka_unit_test(test_evaluations_that_keep_for_good),
		cmocka_unit_test(test_one_pass_through_layers),
		cmocka_unit_test(test_one_pass_inside_a_model),
		cmocka_unit_test(test_data_that_are_loaded),
		cmocka_unit_test(test_layers_that_are_made),
		cmocka_unit_test(test_weights_that_are_unfrozen_in_turn),
		cmocka_unit_test(test_weights_that_are_unfrozen_among_many_sites),
		cmocka_unit_test(test_a_batch_that_grows),
		cmocka_unit_test(test_turns_of_a_recurrent_model),
		cmocka_unit_test(test_caches_of_a_loop_that_is_recognised),
		cmocka_unit_test(test_a_cache_that_is_copied),
		cmocka_unit_test(test_native_stacks_are_not_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
