/* Paged causal attention over a flattened batch: what to compute, in which order, where.
 *
 * A work item is one kv head of up to ITEM_ROWS query rows of one segment. Its keys are
 * taken in chunks of 256 from position 0; each chunk is summed up on its own (in groups of
 * 64, running softmax), and chunks are merged in order. With few items (decode of one long
 * sequence) chunks are spread over the threads and merged afterwards: the same sums in the
 * same order, hence the same bits.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels.h"

enum { ITEM_ROWS = 48 };

/* Running maximum, sum and weighted values of `rows` query rows. */
typedef struct {
  float *top, *total, *mixed;
} State;

typedef struct {
  int64_t segment, kv_head;
  int64_t first_row, tokens; /* rows of the batch */
  int64_t position;          /* of the first row */
} Item;

typedef struct {
  const Attention *a;
  TileFunction tile;
  int64_t group;    /* query heads of one kv head */
  int64_t max_rows; /* query rows of an item */
  int64_t state_floats;
  float scale;
  Item *items;
  int64_t item_count;
} Plan;

/* A thread's memory: the state of a chunk, that of an item, zeros, and a cleaned block. */
typedef struct {
  State chunk, whole;
  char *zeros, *cleaned;
} Scratch;

static State state_at(const Plan *p, float *memory) {
  return (State){memory, memory + p->max_rows, memory + 2 * p->max_rows};
}

static void clear(const State *s, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; r++) s->top[r] = NOTHING_YET, s->total[r] = 0.0f;
  memset(s->mixed, 0, (size_t)(rows * dim) * sizeof(float));
}

/* Add a later chunk's state to that of the chunks before it. */
static void merge(const State *whole, const State *chunk, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; r++) {
    float peak = whole->top[r] > chunk->top[r] ? whole->top[r] : chunk->top[r];
    float old = exp2_fast(whole->top[r] - peak), new = exp2_fast(chunk->top[r] - peak);
    float *to = whole->mixed + r * dim;
    const float *from = chunk->mixed + r * dim;
    whole->top[r] = peak;
    whole->total[r] = whole->total[r] * old + chunk->total[r] * new;
    for (int64_t d = 0; d < dim; d++) to[d] = to[d] * old + from[d] * new;
  }
}

/* Divide by the sums and write the rows out. */
static void finish(const Plan *p, const Item *item, const State *s) {
  const Cache *c = &p->a->cache;
  int64_t dim = c->head_dim;
  for (int64_t r = 0; r < item->tokens * p->group; r++) {
    int64_t row = item->first_row + r / p->group;
    int64_t head = item->kv_head * p->group + r % p->group;
    int64_t at = (row * c->heads + head) * dim;
    const float *mixed = s->mixed + r * dim;
    if (c->dtype == DTYPE_BF16)
      for (int64_t d = 0; d < dim; d++)
        ((uint16_t *)p->a->out)[at + d] = float_to_bf16(mixed[d] / s->total[r]);
    else
      for (int64_t d = 0; d < dim; d++) ((float *)p->a->out)[at + d] = mixed[d] / s->total[r];
  }
}

/* V of a block whose places from `used` on hold no token, with zeros there: a weight of
 * zero does not silence a NaN. */
static const char *cleaned_values(const Cache *c, const char *block, int64_t used, char *copy) {
  int64_t dim = c->head_dim;
  memcpy(copy, block, (size_t)head_bytes(c));
  if (c->dtype == DTYPE_FP32) {
    memset(copy + used * dim * 4, 0, (size_t)((BLOCK_TOKENS - used) * dim * 4));
    return copy;
  }
  int64_t pairs = (used + 1) / 2;
  memset(copy + pairs * dim * 4, 0, (size_t)((BLOCK_TOKENS / 2 - pairs) * dim * 4));
  if (used % 2) {
    uint16_t *half = (uint16_t *)copy + (pairs - 1) * dim * 2;
    for (int64_t d = 0; d < dim; d++) half[2 * d + 1] = 0;
  }
  return copy;
}

static int64_t segment_end(const Batch *b, int64_t segment) {
  return b->starts[segment] + b->offsets[segment + 1] - b->offsets[segment];
}

/* Point the tile at the four blocks of the group that begins at position `group_start`. */
static void aim(const Plan *p, const Item *item, int64_t group_start, Tile *tile, const Scratch *s) {
  const Cache *c = &p->a->cache;
  const Batch *batch = &p->a->batch;
  const int32_t *table = batch->tables + batch->table_offsets[item->segment];
  int64_t end = segment_end(batch, item->segment);
  for (int b = 0; b < GROUP_BLOCKS; b++) {
    int64_t first = group_start + b * BLOCK_TOKENS;
    if (first >= end) {
      tile->k[b] = tile->v[b] = s->zeros;
      continue;
    }
    int64_t block = table[first / BLOCK_TOKENS];
    tile->k[b] = key_block(c, block, item->kv_head);
    tile->v[b] = value_block(c, block, item->kv_head);
    if (end - first < BLOCK_TOKENS)
      tile->v[b] = cleaned_values(c, tile->v[b], end - first, s->cleaned);
  }
}

/* Ask for the blocks of the group at `group_start`: the processor's own prefetch stops at
 * the end of each head's few lines. Inlined by force: gcc deems a function that only
 * prefetches free of effects, and drops its calls. */
static inline __attribute__((always_inline)) void prefetch(const Plan *p, const Item *item, int64_t group_start) {
  const Cache *c = &p->a->cache;
  const Batch *batch = &p->a->batch;
  const int32_t *table = batch->tables + batch->table_offsets[item->segment];
  int64_t end = item->position + item->tokens, bytes = head_bytes(c);
  for (int b = 0; b < GROUP_BLOCKS && group_start + b * BLOCK_TOKENS < end; b++) {
    int64_t block = table[group_start / BLOCK_TOKENS + b];
    const char *k = key_block(c, block, item->kv_head), *v = value_block(c, block, item->kv_head);
    for (int64_t at = 0; at < bytes; at += 64) {
      __builtin_prefetch(k + at);
      __builtin_prefetch(v + at);
    }
  }
}

/* Run all tiles of an item over one group. */
static void attend_group(const Plan *p, const Item *item, int64_t group_start, const State *state,
                         const Scratch *scratch) {
  const Attention *a = p->a;
  int64_t dim = a->cache.head_dim, rows = item->tokens * p->group;
  int size = dtype_bytes(a->cache.dtype);
  Tile tile = {.head_dim = dim, .scale = p->scale};
  aim(p, item, group_start, &tile, scratch);
  for (int64_t first = 0; first < rows; first += TILE_ROWS) {
    tile.rows = (int)(rows - first < TILE_ROWS ? rows - first : TILE_ROWS);
    for (int r = 0; r < tile.rows; r++) {
      int64_t token = (first + r) / p->group, head = item->kv_head * p->group + (first + r) % p->group;
      tile.q[r] = a->qkv + ((item->first_row + token) * a->qkv_stride + head * dim) * size;
      tile.visible[r] = (int)(item->position + token + 1 - group_start);
    }
    if (tile.visible[tile.rows - 1] <= 0) continue;
    tile.top = state->top + first;
    tile.total = state->total + first;
    tile.mixed = state->mixed + first * dim;
    p->tile(&tile);
  }
}

static void attend_chunk(const Plan *p, const Item *item, int64_t chunk, const State *state,
                         const Scratch *scratch) {
  int64_t end = item->position + item->tokens, first = chunk * CHUNK_TOKENS;
  int64_t last = end < first + CHUNK_TOKENS ? end : first + CHUNK_TOKENS;
  clear(state, item->tokens * p->group, p->a->cache.head_dim);
  for (int64_t group = first; group < last; group += GROUP_TOKENS) {
    prefetch(p, item, group + GROUP_TOKENS);
    attend_group(p, item, group, state, scratch);
  }
}

static int64_t chunks_of(const Item *item) {
  return (item->position + item->tokens + CHUNK_TOKENS - 1) / CHUNK_TOKENS;
}

static void attend_item(const Plan *p, const Item *item, const Scratch *scratch) {
  int64_t rows = item->tokens * p->group, dim = p->a->cache.head_dim;
  clear(&scratch->whole, rows, dim);
  for (int64_t chunk = 0; chunk < chunks_of(item); chunk++) {
    attend_chunk(p, item, chunk, &scratch->chunk, scratch);
    merge(&scratch->whole, &scratch->chunk, rows, dim);
  }
  finish(p, item, &scratch->whole);
}

/* Items of all segments, the costliest rows of a segment first. */
static int plan_items(Plan *p) {
  const Batch *b = &p->a->batch;
  int64_t step = ITEM_ROWS / p->group > 0 ? ITEM_ROWS / p->group : 1, count = 0;
  for (int64_t s = 0; s < b->segments; s++)
    count += (b->offsets[s + 1] - b->offsets[s] + step - 1) / step * p->a->cache.kv_heads;
  p->items = malloc((size_t)count * sizeof(Item));
  if (!p->items) return -1;
  p->max_rows = step * p->group;
  for (int64_t s = 0; s < b->segments; s++) {
    int64_t length = b->offsets[s + 1] - b->offsets[s];
    for (int64_t first = (length - 1) / step * step; first >= 0; first -= step)
      for (int64_t head = 0; head < p->a->cache.kv_heads; head++)
        p->items[p->item_count++] = (Item){.segment = s,
                                           .kv_head = head,
                                           .first_row = b->offsets[s] + first,
                                           .tokens = length - first < step ? length - first : step,
                                           .position = b->starts[s] + first};
  }
  return 0;
}

static int64_t scratch_bytes(const Plan *p) {
  return 2 * p->state_floats * (int64_t)sizeof(float) + 2 * head_bytes(&p->a->cache);
}

static Scratch scratch_at(const Plan *p, char *memory) {
  float *floats = (float *)memory;
  char *blocks = memory + 2 * p->state_floats * (int64_t)sizeof(float);
  memset(blocks, 0, (size_t)head_bytes(&p->a->cache));
  return (Scratch){state_at(p, floats), state_at(p, floats + p->state_floats), blocks,
                   blocks + head_bytes(&p->a->cache)};
}

static int run_whole(const Plan *p) {
  int failed = 0;
#pragma omp parallel num_threads(p->a->threads)
  {
    char *memory = aligned_alloc(64, (size_t)(scratch_bytes(p) + 63) / 64 * 64);
    Scratch scratch = {0};
    if (memory) scratch = scratch_at(p, memory);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < p->item_count; i++) {
      if (memory) {
        attend_item(p, &p->items[i], &scratch);
      } else {
#pragma omp atomic write
        failed = 1;
      }
    }
    free(memory);
  }
  return failed ? -1 : 0;
}

/* Every (item, chunk) on its own, then merged in order. `first_part` [items + 1] numbers the
 * parts of an item; `states` holds a state for each part. */
static int run_split(const Plan *p, const int64_t *first_part, float *states) {
  int failed = 0;
#pragma omp parallel num_threads(p->a->threads)
  {
    char *memory = aligned_alloc(64, (size_t)(scratch_bytes(p) + 63) / 64 * 64);
    Scratch scratch = {0};
    if (memory) scratch = scratch_at(p, memory);
#pragma omp for schedule(dynamic)
    for (int64_t part = 0; part < first_part[p->item_count]; part++) {
      int64_t i = 0;
      while (first_part[i + 1] <= part) i++;
      State state = state_at(p, states + part * p->state_floats);
      if (memory) {
        attend_chunk(p, &p->items[i], part - first_part[i], &state, &scratch);
      } else {
#pragma omp atomic write
        failed = 1;
      }
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < p->item_count; i++) {
      if (!memory) continue;
      int64_t rows = p->items[i].tokens * p->group;
      clear(&scratch.whole, rows, p->a->cache.head_dim);
      for (int64_t part = first_part[i]; part < first_part[i + 1]; part++) {
        State state = state_at(p, states + part * p->state_floats);
        merge(&scratch.whole, &state, rows, p->a->cache.head_dim);
      }
      finish(p, &p->items[i], &scratch.whole);
    }
    free(memory);
  }
  return failed ? -1 : 0;
}

static int split(const Plan *p) {
  int64_t *first_part = malloc((size_t)(p->item_count + 1) * sizeof(int64_t));
  if (!first_part) return -1;
  first_part[0] = 0;
  for (int64_t i = 0; i < p->item_count; i++) first_part[i + 1] = first_part[i] + chunks_of(&p->items[i]);
  float *states = malloc((size_t)(first_part[p->item_count] * p->state_floats) * sizeof(float));
  int result = states ? run_split(p, first_part, states) : -1;
  free(states);
  free(first_part);
  return result;
}

int attend(const Attention *a) {
  Plan plan = {.a = a, .group = a->cache.heads / a->cache.kv_heads};
  plan.tile = a->isa == ISA_PORTABLE ? portable_tile(a->cache.dtype) : avx512_tile(a->cache.dtype);
  plan.scale = (float)(1.4426950408889634 / sqrt((double)a->cache.head_dim));
  if (plan_items(&plan) < 0) return -1;
  plan.state_floats = plan.max_rows * (a->cache.head_dim + 2);
  /* Enough items balance the threads by themselves; few are cut into chunks of keys. */
  int result = plan.item_count >= 8 * (int64_t)a->threads ? run_whole(&plan) : split(&plan);
  free(plan.items);
  return result;
}
