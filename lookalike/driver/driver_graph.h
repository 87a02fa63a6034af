/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs as a program holds them: lists of nodes, of which captured ones stand in a graph of the simulator. An instance
 * of a graph that is as it was captured launches the simulator's graph; of any other, one that is made of its nodes.
 */
#ifndef DRIVER_GRAPH_H
#define DRIVER_GRAPH_H

#include "driver_lookalike.h"

#pragma GCC visibility push(hidden)

enum { LOOK_MOST_OBJECTS = 8, LOOK_NODE_CHUNK = 128 };

/* A graph of the simulator that a capture made: ended with the last graph, instance or node that needs it. */
struct look_source {
	sim_graph graph;             /* 0: the capture has not ended */
	uint64_t capture;
	trz_context context;
	unsigned references;
};

/* A reserved address that allocation nodes have: driver_graph_memory.c. */
struct look_block;

struct look_node {
	struct look_graph *graph;    /* that it is part of; NULL: an instance's */
	struct look_source *source;  /* of a captured node that is as it was captured; NULL: `is` says what it does */
	size_t number;               /* there */
	struct look_node **before;   /* what it comes directly after */
	size_t before_count;
	const struct look_node *origin;  /* of a copy: the node that it is one of; not to be followed */
	struct cuda_node is;         /* pointers inside lead into `kept` */
	void *kept;
	trz_context context;
	struct look_block *block;    /* of an allocation or a free */
	size_t at;                   /* in the list that is worked on */
	bool single;                 /* allocated by itself, not in a chunk */
	bool disabled;
	bool placed;                 /* added to a capture under way, in whose graph of the simulator it has a place */
};

struct look_list {
	struct look_node **nodes;
	size_t count, room;
};

/* A program's object that lives as long as graphs and instances that hold it: driver_user_object.c. */
struct look_object;
struct look_objects {
	struct look_object *object[LOOK_MOST_OBJECTS];
	unsigned count;
};

/* How many instances a graph with memory has: it may have one. */
struct look_instances {
	unsigned count, holders;
};

struct look_graph {
	struct look_graph *next;     /* of the captures in progress */
	struct look_source *source;  /* of its own capture; NULL: none */
	struct look_graph *into;     /* of a capture into a graph: that one */
	struct look_list after;      /* and the nodes there that the first captured ones follow */
	struct look_node **chunks;   /* what handles of captured nodes point to, made where one is first asked for */
	size_t chunk_count;
	struct look_list list;       /* all nodes, once the program has asked for more than it captured */
	bool settled, changed;       /* the list is complete; it differs from the capture */
	bool belongs;                /* to a node of another graph */
	bool has_memory;             /* allocation or free nodes, of itself or of a graph that belongs to it */
	struct look_instances *instances;  /* if it has memory; NULL: there has been none */
	struct look_list waiting;    /* added while it was captured, without a place yet */
	struct look_objects objects;
};

struct look_exec {
	struct look_source *source;  /* what is launched if it has no list */
	struct look_list list;
	bool listed;
	sim_graph made;              /* of the list; 0: it is still to be made */
	trz_context context;         /* in which it was made */
	unsigned long long flags;
	bool has_memory;
	struct look_instances *instances;  /* of the graph, if that has memory */
	struct look_objects objects;
};

/* driver_graph.c */
void look_graphs_lock(void);
void look_graphs_unlock(void);
struct look_source *look_source_hold(struct look_source *s);
void look_source_drop(struct look_source *s);
/* Fills in the list of nodes; false: no host memory. */
bool look_graph_settle(struct look_graph *g);
/* The same of a capture for an instance, whose nodes are its own. */
bool look_source_list(struct look_source *s, struct look_list *out);
struct look_graph *look_graph_new(void);
void look_graph_free(struct look_graph *g);
bool look_graph_under_way(const struct look_graph *g);
/* Adds something that does nothing at its place to the capture of a stream, if it is captured: an allocation or a
 * free. */
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
/* In an order in which each comes after those that it follows; false: there is none. */
bool look_list_sort(struct look_list *list);

/* driver_graph_emit.c: makes a graph of the simulator; or adds the nodes to the capture of a stream. */
cuda_result look_list_make(struct look_list *list, trz_context context, sim_graph *out);
cuda_result look_list_capture(struct look_list *list, trz_context context, void *stream);

/* driver_user_object.c */
void look_objects_copy(struct look_objects *to, const struct look_objects *from);
void look_objects_drop(struct look_objects *objects);

/* driver_graph_memory.c */
cuda_result look_block_make(struct look_node *n, struct cuda_alloc_node *alloc);
cuda_result look_block_free_node(struct look_node *n, cuda_addr address);
void look_block_hold(struct look_block *b);
void look_block_drop(struct look_node *n);
/* Before a launch: each allocation has memory, and those of the last launch have been freed. `moved`: an address has
 * got new memory. */
cuda_result look_blocks_lay(struct look_exec *e, trz_context context, void *stream, bool *moved);
void look_blocks_launched(struct look_exec *e, trz_context context, void *stream);
/* Frees an allocation that a graph has made, in the order of a stream; false: it is none. */
bool look_block_free(cuda_addr address, trz_context context, void *stream, cuda_result *result);

/* driver_attribute.c: attributes of streams and kernel nodes, which are kept and change nothing. */
cuda_result look_attribute_set(const void *owner, int id, const void *value);
cuda_result look_attribute_get(const void *owner, int id, void *value);
cuda_result look_attributes_copy(const void *to, const void *from);
void look_attributes_forget(const void *owner);

/* driver_module.c: checks a launch, and copies its parameters into memory to be freed; and enqueues it. */
cuda_result look_kernel_keep(struct cuda_kernel_node *k, void **kept);
trz_status look_kernel_enqueue(const struct cuda_kernel_node *k, trz_context context, void *stream);

#pragma GCC visibility pop

#endif
