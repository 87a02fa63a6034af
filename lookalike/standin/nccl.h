/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of the stand-in for NCCL: communicators among the processes of one `terrazzo sim`.
 *
 * nccl_hall.c     the memory that the processes share, and who of them lives
 * nccl_comm.c     communicators: how ranks find one another, and part
 * nccl_call.c     the collectives' functions, groups
 * nccl_meet.c     what a collective does on its stream: arrive, wait for the others, move bytes
 * nccl_reduce.c   reductions, in every type
 * nccl_wait.c     waiting, and the errors of ranks that disagree, die or wait for each other
 *
 * Everything shared lies in one file without a name, which `terrazzo sim` keeps: it goes with the last process,
 * however that ends. Its lock outlives who dies with it.
 */
#ifndef TRZ_STANDIN_NCCL_H
#define TRZ_STANDIN_NCCL_H

#include <pthread.h>

#include "standin.h"
#include "standin_driver.h"

enum {
	NCCL_SUCCESS = 0, NCCL_UNHANDLED_CUDA_ERROR = 1, NCCL_SYSTEM_ERROR = 2, NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5, NCCL_REMOTE_ERROR = 6
};

/* As nccl.h of NVIDIA numbers them. */
enum {
	NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64, NCCL_HALF, NCCL_FLOAT, NCCL_DOUBLE,
	NCCL_BFLOAT16, NCCL_E4M3, NCCL_E5M2, NCCL_TYPES
};
/* Every operation that a program has made counts as the last. */
enum { NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG, NCCL_SCALED_SUM };

enum {
	MOST_PROCESSES = 64, MOST_RANKS = 64, MOST_COMMS = 1024, MOST_LETTERS = 4096, PLACE_BYTES = 1000,
	FAILURE_BYTES = 400,
	NODE_DEVICES = 16,             /* device numbers of one node */
	RING = 16,                     /* collectives of a communicator that may be under way */
	SPLIT = STANDIN_KIND_COUNT     /* the host's own meeting, by which ncclCommSplit learns of colors and keys */
};

/* What a rank calls, and where in its program. */
struct call {
	int32_t kind, type, operation, root;  /* root: or peer; of a split the color, with the key in `count` */
	uint64_t count, sequence;             /* sequence 0: captured, each launch has its own */
	double scale;                         /* of NCCL_SCALED_SUM */
	char place[PLACE_BYTES];
};

/* A rank at a meeting, with the bytes that it brought: `pages` of the hall. */
struct arrival {
	struct call call;
	uint64_t page, bytes;
	bool known;                           /* the host had sent them */
};

/* A collective under way. Masks have a bit for each rank. */
struct table {
	uint64_t sequence;                    /* 0: free */
	uint64_t ended;                       /* the newest that all ranks have left */
	uint64_t arrived, left;
	int32_t first;                        /* rank that came first */
	struct arrival arrival[MOST_RANKS];
};

/* A message between two ranks of a communicator: number `index` of those from one to the other. */
struct letter {
	uint64_t comm;                        /* its number; 0: free */
	int32_t from, to;
	uint64_t index;
	bool sent, received, sender_left, receiver_left;
	struct arrival send, receive;
};

struct shared_comm {
	uint64_t key[2];
	uint64_t number;                      /* never used again; 0: free */
	int32_t ranks;
	uint64_t joined, gone;
	bool failed;
	char failure[FAILURE_BYTES];
	struct {
		int32_t process, device;          /* by its number */
	} member[MOST_RANKS];
	struct table ring[RING];              /* by sequence */
};

/* What a host waits for. */
struct waiting {
	bool active;
	uint64_t comm;                        /* number of the communicator */
	int32_t place, rank;                  /* of it among all, and ours there */
	int32_t peer;                         /* a letter's other end; -1: a table of this sequence, or to be joined */
	uint64_t sequence, index;
	bool receives;
	int64_t since_ms, seen_ms;            /* first and last said by the host */
	struct call call;
};

enum { MOST_WAITS = 4 };

/* Lives while it holds the lock on the byte of its place. */
struct process {
	int32_t pid;                          /* 0: never used */
	int32_t world_rank;                   /* -1: the environment does not say */
	bool failing;                         /* a communicator of it has failed: it will end for that */
	struct waiting waiting[MOST_WAITS];
};

struct hall {
	char magic[8];
	uint64_t bytes;
	pthread_mutex_t lock;
	uint32_t change;                      /* grows whenever a wait may be over */
	int64_t blocked_ms;                   /* when a host last waited */
	int64_t suspected_ms;                 /* when ranks last seemed to wait for each other; 0: never */
	int32_t processes, comms, letters;    /* places ever used */
	uint64_t comm_numbers;
	struct process process[MOST_PROCESSES];
	struct shared_comm comm[MOST_COMMS];
	struct letter letter[MOST_LETTERS];
};

/* A communicator as one rank has it. */
struct comm {
	int rank, ranks, device;
	int device_number;                    /* which no other device of the run has */
	struct shared_comm *shared;           /* NULL: there is no one else */
	uint64_t number;
	uint64_t key[2];
	bool alone;                           /* the other ranks are absent, and do what this one does */
	uint64_t sequence, splits;            /* collectives issued; communicators made of this one */
	uint64_t *sends, *receives;           /* by peer */
	unsigned references;                  /* the program's, and one for each part on a stream or in a graph */
	unsigned captured;                    /* parts in graphs */
	bool aborted, suspended;
	int error;
	char text[FAILURE_BYTES];
	struct scale {
		double value;
		const void *at;                   /* on the device, where it is read when bytes move; NULL: `value` */
		int type;
	} *scales;                            /* of the operations that the program has made */
	int scale_count;
	uint64_t memory;                      /* of the device */
	bool has_collectives, *has_peer;      /* what that is for; the latter by rank */
};

/* ---- nccl_hall.c */
extern struct hall *hall;
extern int hall_process;
/* Joins the hall; false, with a line on standard error: impossible. */
bool hall_open(void);
void hall_lock(void);
void hall_unlock(void);
/* Wakes whoever waits. */
void hall_changed(void);
bool hall_is_alive(int process);
/* Room for bytes that a rank brings; 0: there is none. */
uint64_t hall_take(uint64_t bytes);
void hall_give(uint64_t page, uint64_t bytes);
void *hall_bytes(uint64_t page);

/* ---- nccl_call.c */
/* Messages of up to so many bytes a rank are real. */
uint64_t nccl_real_bytes(void);
uint64_t nccl_type_bytes(int type);
/* The next number of a call of this kind, with this peer. */
uint64_t nccl_next_number(struct comm *c, int kind, int peer);

/* Takes what NCCL would, for a collective (peer -1) or for messages with a rank; a result. */
int nccl_take_memory(struct comm *c, int peer);
/* Inside ncclGroupStart and ncclGroupEnd. */
bool nccl_in_group(void);

/* ---- nccl_comm.c */
/* Work on streams keeps a communicator, whatever the program does with it. */
void nccl_keep(struct comm *c);
void nccl_release(struct comm *c);
/* Waits for the ranks of the communicators that this thread has begun in a group. */
int nccl_await_joins(void);
/* The factor of an operation that the program has made. */
struct scale nccl_scale(const struct comm *c, int operation);
uint64_t nccl_everyone(const struct comm *c);
void nccl_fail(struct comm *c, int error, const char *text);
/* For what no rank may do: says so on standard error, and returns a result. */
int nccl_refuse_use(struct comm *c, const char *text);

/* ---- nccl_meet.c */
struct part {
	struct comm *comm;
	struct call call;
	const void *from;
	void *to;
	uint64_t from_bytes, to_bytes;
	bool real, known, arrived;
	struct scale scale;                   /* of NCCL_SCALED_SUM */
	struct letter *letter;
};
/* Puts parts, which end at the same time, on a stream: a result of NCCL. */
int nccl_meet(const struct part *parts, size_t count, void *stream);
/* Something of the communicator that has arrived and is not complete. */
bool nccl_find_pending(const struct comm *of, struct waiting *w);
/* What the process's streams wait for now is looked at. */
void nccl_watch(void);
/* With the hall's lock: the table of a collective; NULL: the ring has no room for it yet. */
struct table *nccl_table(struct shared_comm *shared, uint64_t sequence);
/* The same: this rank is there. Compares it with who came first. */
struct arrival *nccl_arrive(struct comm *c, struct table *t, const struct call *call);
/* The same: it is done with the table, which is given back after the last: true. */
bool nccl_leave(struct comm *c, struct table *t);

/* ---- nccl_reduce.c */
/* The result of elements [first, first + count) of what `ranks` have brought, whose scales count for SCALED_SUM. */
void nccl_reduce(int type, int operation, void *to, const void *const *from, const double *scale, int ranks,
                 uint64_t first, uint64_t count);

/* A number of the type. */
double nccl_value(int type, const void *at);

/* ---- nccl_wait.c */
void nccl_describe(const struct call *c, char *text, size_t size);
/* With the hall's lock: the communicator has failed, for all its ranks; by two that disagree. */
void nccl_end(struct shared_comm *shared, const char *text);
void nccl_disagree(struct shared_comm *shared, const struct call *a, int rank_a, const struct call *b, int rank_b,
                   const char *what);
/* With the hall's lock: a message that this rank or one that is gone will never receive fails the communicator that the
 * rank leaves; `text` says which. */
void nccl_look_for_unreceived(struct comm *c, char *text, size_t size);
/* With the hall's lock: whether the wait is over, or it fails now since one that it needs is gone. */
bool nccl_is_over(const struct waiting *w);
/* Waits for something to change since the mark, with `w` to be seen by the others. */
void nccl_wait(const struct waiting *w, uint32_t mark);
/* Fails what waits for one that is gone, while this host is elsewhere. */
void nccl_watch_one(const struct waiting *w);
/* The thread that lets this process's streams go on while its host is elsewhere. */
void nccl_start_progress(void);

int ncclGroupStart(void);
int ncclGroupEnd(void);

/* The driver's own functions, weak as those of standin_driver.h. */
#define WEAK __attribute__((weak))
WEAK int cuCtxGetCurrent(void **context);
WEAK int cuCtxPushCurrent_v2(void *context);
WEAK int cuCtxPopCurrent_v2(void **context);

#endif
