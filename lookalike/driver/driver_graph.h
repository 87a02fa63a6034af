/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs as a program holds them: lists of nodes; captured nodes are in a graph of the simulator. An instance of a
 * graph that is as it was captured launches the simulator's graph; any other launches one made of its nodes.
 */
#ifndef DRIVER_GRAPH_H
#define DRIVER_GRAPH_H

#include "driver_lookalike.h"

#pragma GCC visibility push(hidden)

enum { LOOK_NODE_CHUNK = 128 };

/* A graph of the simulator that a capture made. It ends with the last graph, instance or node that needs it. */
struct look_source {
	sim_graph graph;             /* 0: the capture has not ended */
	uint64_t capture;
	trz_context context;
	unsigned references;
};

/* The reserved address of an allocation node: driver_graph_memory.c. */
struct look_block;

struct look_node {
	struct look_graph *graph;    /* the graph that it is part of; NULL: it is an instance's */
	struct look_source *source;  /* where a captured, unchanged node comes from; NULL: `is` says what it does */
	size_t number;               /* its number there */
	struct look_node **before;   /* the nodes that it directly follows */
	size_t before_count;
	const struct look_node *origin;  /* of a copy: the node copied; never dereferenced */
	struct cuda_node is;         /* pointers inside lead into `kept` */
	void *kept;
	trz_context context;
	struct look_block *block;    /* what an allocation or free node is about */
	size_t at;                   /* its place in the list that is being worked on */
	bool single;                 /* allocated by itself, not in a chunk */
	bool disabled;
	bool placed;                 /* the program added it to a capture under way, and it has a place there */
};

struct look_list {
	struct look_node **nodes;
	size_t count, room;
};

/* An object of the program's that lives as long as graphs or instances hold it: driver_user_object.c. */
struct look_object;
struct look_held {
	struct look_object *object;
	unsigned references;
};
struct look_objects {
	struct look_held *held;
	unsigned count;
};

/* How many instances a graph with memory has: at most one. */
struct look_instances {
	unsigned count, holders;
};

struct look_graph {
	struct look_graph *next;     /* in the list of captures in progress */
	struct look_source *source;  /* what its own capture made; NULL: it was not captured */
	struct look_graph *into;     /* the graph that this capture adds to; NULL: none */
	struct look_list after;      /* the nodes there that the first captured ones follow */
	struct look_node **chunks;   /* the captured nodes that handles point to, made when one is first asked for */
	size_t chunk_count;
	struct look_list list;       /* all nodes, once the program has asked for more than it captured */
	bool settled, changed;       /* the list is complete; it differs from the capture */
	bool belongs;                /* it belongs to a node of another graph */
	bool has_memory;             /* it, or a graph that belongs to it, has allocation or free nodes */
	struct look_instances *instances;  /* of a graph with memory; NULL: it has had none */
	struct look_list waiting;    /* nodes that the program added during the capture, placed or not */
	struct look_objects objects;
};

struct look_exec {
	struct look_source *source;  /* what is launched if it has no list */
	struct look_list list;
	bool listed;
	sim_graph made;              /* made of the list; 0: not yet */
	trz_context context;         /* the context that it was made in */
	unsigned long long flags;
	bool has_memory;
	struct look_instances *instances;  /* the graph's, if that has memory */
	struct look_objects objects;
	trz_event launched;          /* if it holds objects: recorded behind its newest launch; NULL: there was none */
	trz_context launched_in;     /* the event's context */
};

/* driver_graph.c */
void look_graphs_lock(void);
void look_graphs_unlock(void);
struct look_source *look_source_hold(struct look_source *s);
void look_source_drop(struct look_source *s);
/* Fills in the list of nodes; false: no host memory. */
bool look_graph_settle(struct look_graph *g);
/* Lists the nodes of a capture anew, for an instance; false: no host memory. */
bool look_source_list(struct look_source *s, struct look_list *out);
struct look_graph *look_graph_new(void);
void look_graph_free(struct look_graph *g);
bool look_graph_under_way(const struct look_graph *g);
/* Adds an allocation or a free, which does nothing at its place, to the capture of a stream, if it is captured. */
void look_graph_place(trz_context context, void *stream, const struct cuda_node *is);

/* driver_graph_node.c */
bool look_list_add(struct look_list *list, struct look_node *n);
void look_list_free(struct look_list *list);
struct look_node *look_node_new(void);
void look_node_free(struct look_node *n);
/* Copies what the node is to do, and all that it points to. */
cuda_result look_node_set(struct look_node *n, const struct cuda_node *is);
/* Copies of all nodes, for another graph or (NULL) an instance. */
cuda_result look_list_copy(const struct look_list *from, struct look_graph *owner, struct look_list *to);
/* Sorts the nodes so that each comes after those that it follows; false: no order does that, or no host memory. */
bool look_list_sort(struct look_list *list);

/* driver_graph_emit.c: make the nodes into a graph of the simulator, or add them to the capture of a stream. */
cuda_result look_list_make(struct look_list *list, trz_context context, sim_graph *out);
cuda_result look_list_capture(struct look_list *list, trz_context context, void *stream);

/* driver_user_object.c */
/* Takes one reference of each; false: no host memory. */
bool look_objects_copy(struct look_objects *to, const struct look_objects *from);
void look_objects_drop(struct look_objects *objects);
/* Drops them once the event, which ends here, has passed: until then launches may use them. NULL: at once. */
void look_objects_drop_after(struct look_objects *objects, trz_context context, trz_event event);

/* driver_graph_memory.c */
cuda_result look_block_make(struct look_node *n, struct cuda_alloc_node *alloc);
cuda_result look_block_free_node(struct look_node *n, cuda_addr address);
void look_block_hold(struct look_block *b);
void look_block_drop(struct look_node *n);

/* Records an event behind the stream's work so far. It is made if there is none (NULL), or if it is of another context;
 * NULL afterwards: it could not be. */
void look_mark(trz_context *of, trz_event *event, trz_context context, void *stream);

/* Before a launch: gives memory to each allocation; refuses if one is still live, unless launches free it. `moved`: an
 * address has got new memory. */
cuda_result look_blocks_lay(struct look_exec *e, trz_context context, void *stream, bool *moved);
void look_blocks_launched(struct look_exec *e, trz_context context, void *stream);
/* Frees memory that a graph has allocated, in a stream's order; false: no graph has. */
bool look_block_free(cuda_addr address, trz_context context, void *stream, cuda_result *result);

/* driver_attribute.c: attributes of streams and kernel nodes; they are kept and change nothing. */
cuda_result look_attribute_set(const void *owner, int id, const void *value);
cuda_result look_attribute_get(const void *owner, int id, void *value);
cuda_result look_attributes_copy(const void *to, const void *from);
void look_attributes_forget(const void *owner);

/* driver_module.c: checks a launch and copies its parameters to memory that the caller frees; enqueues a launch. */
cuda_result look_kernel_keep(struct cuda_kernel_node *k, void **kept);
trz_status look_kernel_enqueue(const struct cuda_kernel_node *k, trz_context context, void *stream);

/* driver_parts.c: whether the launches of a kernel work on parts of the same memory. A launch begins, gets its
 * parameters that are numbers or addresses, and is noted. */
enum { LOOK_PARTS_NUMBERS = 8 };
struct look_launch {
	void *stream;
	unsigned grid[3], block[3];
	uint64_t address, addresses;  /* the first; a hash of all */
	size_t count;
	uint64_t number[LOOK_PARTS_NUMBERS];
};
struct look_parts {
	struct look_launch last;
	bool found;
};
void look_parts_begin(struct look_launch *l, const struct cuda_kernel_node *k, void *stream);
void look_parts_add_number(struct look_launch *l, uint64_t number);
void look_parts_add_address(struct look_launch *l, uint64_t address);
bool look_parts_note(struct look_parts *p, const struct look_launch *l);

#pragma GCC visibility pop

#endif
