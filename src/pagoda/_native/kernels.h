/* Shared declarations of Pagoda's CPU kernels.
 *
 * All of them are batch invariant: what is computed for a token depends on its own sequence
 * alone, never on the other rows, the tile, the chunk or the number of threads. Sums have a
 * fixed order, and the build forbids contraction of a*b+c, so that every compilation of a
 * function gives the same bits.
 */
#ifndef PAGODA_KERNELS_H
#define PAGODA_KERNELS_H

#include <stdint.h>
#include <string.h>

enum { BLOCK_TOKENS = 16, GROUP_BLOCKS = 4, GROUP_TOKENS = 64, CHUNK_TOKENS = 256 };
enum { TILE_ROWS = 6 };

typedef enum { DTYPE_FP32 = 0, DTYPE_BF16 = 1 } Dtype;

/* Instruction sets a kernel may be asked to use, least first. */
typedef enum { ISA_PORTABLE = 0, ISA_AVX512 = 1, ISA_AVX512_BF16 = 2 } Isa;

static inline int dtype_bytes(Dtype dtype) { return dtype == DTYPE_BF16 ? 2 : 4; }

/* The shape of attention and where a layer's KV lies in the pool (see engine/layout.py). */
typedef struct {
  Dtype dtype;
  int64_t heads, kv_heads, head_dim;
  char *pool;
  int64_t num_blocks, block_bytes, layer_offset; /* offset of the layer inside a block */
} Cache;

static inline int64_t head_bytes(const Cache *c) {
  return BLOCK_TOKENS * c->head_dim * dtype_bytes(c->dtype);
}
static inline char *key_block(const Cache *c, int64_t block, int64_t head) {
  return c->pool + block * c->block_bytes + c->layer_offset + head * head_bytes(c);
}
static inline char *value_block(const Cache *c, int64_t block, int64_t head) {
  return key_block(c, block, c->kv_heads + head);
}

/* A flattened batch: segment s owns rows offsets[s] to offsets[s + 1], at positions from
 * starts[s]; its block ids are tables[table_offsets[s]] onwards. */
typedef struct {
  int64_t segments;
  const int32_t *offsets, *starts, *table_offsets, *tables;
} Batch;

/* Up to TILE_ROWS query rows against one group of 64 keys.
 *
 * q[r]: a query row of head_dim elements. k[b], v[b]: the group's four blocks of one head;
 * blocks past the sequence's end point to zeros, and no value is NaN. visible[r]: how many
 * keys of the group row r sees (≤ 0: none). scale: 1/sqrt(head_dim) × log2(e).
 * top, total [rows], mixed [rows][head_dim]: running maximum, sum and weighted values. */
typedef struct {
  int rows;
  int64_t head_dim;
  float scale;
  const char *q[TILE_ROWS];
  const char *k[GROUP_BLOCKS], *v[GROUP_BLOCKS];
  int visible[TILE_ROWS];
  float *top, *total, *mixed;
} Tile;

typedef void (*TileFunction)(const Tile *);

/* Finite, so that a row that has seen no key yields no NaN. */
#define NOTHING_YET (-1e30f)

/* The tile function for an instruction set, which this processor must support. */
TileFunction portable_tile(Dtype dtype);
TileFunction avx512_tile(Dtype dtype); /* NULL where the compiler has no such target */
Isa best_isa(Dtype dtype);

/* Attention of every row of a batch: q rows are `qkv_stride` elements apart; out is
 * [rows][heads × head_dim]. Returns 0, or -1 when memory ran out. */
typedef struct {
  Cache cache;
  Batch batch;
  Isa isa;
  int threads;
  const char *qkv;
  int64_t qkv_stride;
  char *out;
} Attention;
int attend(const Attention *a);

/* Rope and storage of K and V: rotates q of qkv [tokens][(heads + 2 kv_heads) × head_dim] in
 * place, and writes rotated k and v to the slots (block × 16 + place). q_norm, k_norm: NULL,
 * or weights [head_dim] of a norm before the rotation. */
typedef struct {
  Cache cache;
  int threads;
  int64_t tokens;
  char *qkv;
  const char *cosines, *sines; /* [positions][head_dim / 2] */
  const char *q_norm, *k_norm;
  float eps;
  const int32_t *positions, *slots;
} RopeStore;
void rope_store(const RopeStore *r);

/* residual += delta (when not NULL); out = norm(residual) × weight; all [rows][width]. */
typedef struct {
  Dtype dtype;
  int threads;
  int64_t rows, width;
  char *residual, *out;
  const char *delta, *weight;
  float eps;
} AddNorm;
void add_norm(const AddNorm *n);

/* out [rows][width] = silu(gate) × up, gate_up being [rows][2 × width]. */
typedef struct {
  Dtype dtype;
  int threads;
  int64_t rows, width;
  const char *gate_up;
  char *out;
} SiluMul;
void silu_mul(const SiluMul *s);

/* ---- numbers ---- */

static inline float bf16_to_float(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

/* Round to nearest, ties to even; NaN stays NaN. */
static inline uint16_t float_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  uint32_t quiet = (bits >> 16) | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* 2^x for x ≤ 127, to about one unit in the last place, exactly 1 at 0; 0 below -126. The
 * coefficients are a minimax fit of 2^f on [-1/2, 1/2] with the constant fixed at 1 (error
 * of the polynomial itself: 2e-9). */
#define EXP2_C1 6.931472029e-01f
#define EXP2_C2 2.402264791e-01f
#define EXP2_C3 5.550332471e-02f
#define EXP2_C4 9.618437358e-03f
#define EXP2_C5 1.339887442e-03f
#define EXP2_C6 1.535336189e-04f
static inline float exp2_fast(float x) {
  const float round = 12582912.0f; /* 1.5 × 2^23: adding it rounds to a whole number */
  float clamped = x < -126.0f ? -126.0f : x;
  float whole = (clamped + round) - round;
  float f = clamped - whole;
  float p = EXP2_C6;
  p = p * f + EXP2_C5;
  p = p * f + EXP2_C4;
  p = p * f + EXP2_C3;
  p = p * f + EXP2_C2;
  p = p * f + EXP2_C1;
  p = p * f + 1.0f;
  uint32_t bits = (uint32_t)((int32_t)whole + 127) << 23;
  float power;
  memcpy(&power, &bits, sizeof power);
  return x < -126.0f ? 0.0f : p * power;
}

#endif
