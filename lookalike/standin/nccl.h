/* SPDX-License-Identifier: Apache-2.0
 *
 * The internals of the stand-in for NCCL: communicators among the processes of one `terrazzo sim`.
 *
 * nccl_hall.c     the memory that the processes share, and which of them live
 * nccl_comm.c     communicators: how ranks find one another, and leave
 * nccl_call.c     the collectives' functions, groups
 * nccl_meet.c     what a collective does on its stream: arrive, wait for the others, move bytes
 * nccl_reduce.c   reductions, in every type
 * nccl_wait.c     waiting, and the errors of ranks that disagree, die or wait for each other
 *
 * Everything shared lies in one unnamed file, which `terrazzo sim` holds open: it goes with the last process, however
 * that ends. Its lock survives a holder's death.
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

/* Refuses a pointer that is NULL. */
#define NCCL_NEED(pointer) \
	do { \
		if (!(pointer)) \
			return NCCL_INVALID_ARGUMENT; \
	} while (0)

/* Types, numbered as in NVIDIA's nccl.h. */
enum {
	NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64, NCCL_HALF, NCCL_FLOAT, NCCL_DOUBLE,
	NCCL_BFLOAT16, NCCL_E4M3, NCCL_E5M2, NCCL_TYPES
};
/* Operations; all those that the program has made are NCCL_SCALED_SUM. */
enum { NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG, NCCL_SCALED_SUM };

enum {
	MOST_PROCESSES = 64, MOST_RANKS = 64, MOST_COMMS = 1024, MOST_LETTERS = 4096, PLACE_BYTES = 1000,
	FAILURE_BYTES = 400,
	NODE_DEVICES = 16,             /* device numbers of one node */
	RING = 16,                     /* how many collectives of a communicator may be under way */
	SPLIT = STANDIN_KIND_COUNT     /* a meeting of hosts, by which ncclCommSplit learns of colors and keys */
};

/* What a rank calls, and where in its program. */
struct call {
	int32_t kind, type, operation, root;  /* root: or the peer; for a split the color, and `count` is the key */
	uint64_t count, sequence;             /* sequence 0: captured; each launch has its own */
	double scale;                         /* for NCCL_SCALED_SUM */
	char place[PLACE_BYTES];
};

/* A rank at a meeting, and the bytes that it brought, in the hall's pages from `page` on. */
struct arrival {
	struct call call;
	uint64_t page, bytes;
	bool known;                           /* the host had sent the bytes */
};

/* A collective under way. Masks have a bit for each rank. */
struct table {
	uint64_t sequence;                    /* 0: free */
	uint64_t ended;                       /* the newest collective here that all ranks have left */
	uint64_t arrived, left;
	int32_t first;                        /* the rank that came first */
	struct arrival arrival[MOST_RANKS];
};

/* A message between two ranks of a communicator, the `index`-th from one to the other. */
struct letter {
	uint64_t comm;                        /* the communicator's number; 0: free */
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
		int32_t process, device;          /* device: its number in the run */
	} member[MOST_RANKS];
	struct table ring[RING];              /* by sequence modulo RING */
};

/* What a host (or its stream) waits for. */
struct waiting {
	bool active;
	uint64_t comm;                        /* the communicator's number */
	int32_t place, rank;                  /* the communicator's place in the hall; our rank in it */
	int32_t peer;                         /* the other end of a letter; -1: waits at a table, or for ranks to join */
	uint64_t sequence, index;
	bool receives;
	int64_t since_ms, seen_ms;            /* when the host first and last said so */
	struct call call;
};

enum { MOST_WAITS = 4 };

/* A process. It lives while it holds the lock on the byte for its place. */
struct process {
	int32_t pid;                          /* 0: never used */
	int32_t world_rank;                   /* -1: the environment does not say */
	bool failing;                         /* one of its communicators has failed, so it will end */
	struct waiting waiting[MOST_WAITS];
};

struct hall {
	char magic[8];
	uint64_t bytes;
	pthread_mutex_t lock;
	uint32_t change;                      /* counts the times that a wait may have ended */
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
	int device_number;                    /* unique in the run */
	struct shared_comm *shared;           /* NULL: there are no other ranks */
	uint64_t number;
	uint64_t key[2];
	bool alone;                           /* the other ranks are absent, assumed to do what this one does */
	uint64_t sequence, splits;            /* how many collectives were issued, and communicators made of this one */
	uint64_t *sends, *receives;           /* by peer */
	unsigned references;                  /* the program's, and one for each part on a stream or in a graph */
	unsigned captured;                    /* parts in graphs */
	bool aborted, suspended;
	int error;
	char text[FAILURE_BYTES];
	struct scale {
		double value;
		const void *at;                   /* where on the device it is read when bytes move; NULL: `value` counts */
		int type;
		bool gone;
	} *scales;                            /* of the operations that the program has made */
	int scale_count;
	uint64_t memory;                      /* bytes of the device that it has taken */
	bool has_collectives, *has_peer;      /* what these are for: collectives, messages with each rank */
};

/* ---- nccl_hall.c */
extern struct hall *hall;
extern int hall_process;
/* Joins the hall; false, with a line on standard error: it cannot. */
bool hall_open(void);
void hall_lock(void);
void hall_unlock(void);
/* Wakes whoever waits. */
void hall_changed(void);
bool hall_is_alive(int process);
/* Takes pages for bytes that a rank brings, and returns the first; 0: there is no room. */
uint64_t hall_take(uint64_t bytes);
void hall_give(uint64_t page, uint64_t bytes);
void *hall_bytes(uint64_t page);

/* ---- nccl_call.c */
/* Collectives and messages of up to so many bytes a rank move real bytes. */
uint64_t nccl_real_bytes(void);
uint64_t nccl_type_bytes(int type);
/* The number of the next call of this kind, with this peer. */
uint64_t nccl_next_number(struct comm *c, int kind, int peer);

/* Takes the device memory that NCCL would for collectives (peer -1) or messages with a rank. Returns NCCL's result. */
int nccl_take_memory(struct comm *c, int peer);
/* Whether the thread is between ncclGroupStart and ncclGroupEnd. */
bool nccl_in_group(void);

/* ---- nccl_comm.c */
/* Work on streams keeps its communicator until it is done, even if the program destroys that. */
void nccl_keep(struct comm *c);
void nccl_release(struct comm *c);
/* Waits for the ranks of the communicators that this thread has begun in a group. */
int nccl_await_joins(void);
/* The factor of an operation that the program has made. */
bool nccl_is_operation(const struct comm *c, int operation);
struct scale nccl_scale(const struct comm *c, int operation);
uint64_t nccl_everyone(const struct comm *c);
void nccl_fail(struct comm *c, int error, const char *text);
/* Refuses what no rank may do: says so on standard error, and returns a result of NCCL. */
int nccl_refuse_use(struct comm *c, const char *text);

/* ---- nccl_meet.c */
struct part {
	struct comm *comm;
	struct call call;
	const void *from;
	void *to;
	uint64_t from_bytes, to_bytes;
	bool real, known, arrived;
	struct scale scale;                   /* for NCCL_SCALED_SUM */
	struct letter *letter;
};
/* Puts parts, which end at the same time, on a stream. Returns a result of NCCL. */
int nccl_meet(const struct part *parts, size_t count, void *stream);
/* Finds something of the communicator that has arrived and is not complete. */
bool nccl_find_pending(const struct comm *of, struct waiting *w);
/* Looks at what the process's streams wait for now. */
void nccl_watch(void);
/* With the hall's lock: the table of a collective; NULL: the ring has no room for it yet. */
struct table *nccl_table(struct shared_comm *shared, uint64_t sequence);
/* The same: this rank arrives. Compares its call with that of the rank that came first. */
struct arrival *nccl_arrive(struct comm *c, struct table *t, const struct call *call);
/* The same: this rank is done with the table. True: it was the last, and the table is free. */
bool nccl_leave(struct comm *c, struct table *t);

/* ---- nccl_reduce.c */
/* Reduces elements [first, first + count) of what the ranks have brought; `scale`: each rank's, for SCALED_SUM. */
void nccl_reduce(int type, int operation, void *to, const void *const *from, const double *scale, int ranks,
                 uint64_t first, uint64_t count);

/* Reads one number of the type. */
double nccl_value(int type, const void *at);

/* ---- nccl_wait.c */
void nccl_describe(const struct call *c, char *text, size_t size);
/* With the hall's lock: fail a communicator for all its ranks; the latter since two ranks disagree. */
void nccl_end(struct shared_comm *shared, const char *text);
void nccl_disagree(struct shared_comm *shared, const struct call *a, int rank_a, const struct call *b, int rank_b,
                   const char *what);
/* With the hall's lock: this rank leaves. If it, or a rank that is gone, will never receive a message, fails the
 * communicator; `text` says which message. */
void nccl_look_for_unreceived(struct comm *c, char *text, size_t size);
/* With the hall's lock: whether the wait is over. */
bool nccl_is_over(const struct waiting *w);
/* Waits until something changes after the mark, and shows `w` to the other processes meanwhile. */
void nccl_wait(const struct waiting *w, uint32_t mark);
/* While this host is elsewhere: fails a wait for a rank that is gone. */
void nccl_watch_one(const struct waiting *w);
/* Starts the thread that lets this process's streams go on while its host is elsewhere. */
void nccl_start_progress(void);

int ncclGroupStart(void);
int ncclGroupEnd(void);

/* The driver's own functions, weak like those of standin_driver.h. */
#define WEAK __attribute__((weak))
WEAK int cuCtxGetCurrent(void **context);
WEAK int cuCtxPushCurrent_v2(void *context);
WEAK int cuCtxPopCurrent_v2(void **context);

#endif
