/* Row-wise steps between the matrix products, rounded where transformers' models round. */
#include <math.h>

#include "kernels.h"

typedef struct {
  void (*norm)(const char *in, const char *weight, char *out, int64_t width, float eps, Dtype dtype);
  void (*add)(char *to, const char *delta, int64_t width, Dtype dtype);
  void (*silu)(const char *gate, const char *up, char *out, int64_t width, Dtype dtype);
  void (*rotate)(char *head, const char *cosines, const char *sines, int64_t half, Dtype dtype);
} RowFunctions;

#define ROW(name) name##_portable
#define ROW_TARGET
#include "rows.h"
#undef ROW
#undef ROW_TARGET

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ROW(name) name##_avx512
#define ROW_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")))
#include "rows.h"
#undef ROW
#undef ROW_TARGET
static const RowFunctions *row_functions(void) {
  return best_isa(DTYPE_FP32) == ISA_PORTABLE ? &row_functions_portable : &row_functions_avx512;
}
#else
static const RowFunctions *row_functions(void) { return &row_functions_portable; }
#endif

/* Below this many elements a second thread costs more than it brings. */
enum { PARALLEL_ELEMENTS = 8192 };

static int threads_for(int64_t elements, int threads) {
  return elements < PARALLEL_ELEMENTS ? 1 : threads;
}

void add_norm(const AddNorm *n) {
  const RowFunctions *f = row_functions();
  int64_t stride = n->width * dtype_bytes(n->dtype);
#pragma omp parallel for num_threads(threads_for(n->rows * n->width, n->threads))
  for (int64_t row = 0; row < n->rows; row++) {
    char *residual = n->residual + row * stride;
    if (n->delta) f->add(residual, n->delta + row * stride, n->width, n->dtype);
    f->norm(residual, n->weight, n->out + row * stride, n->width, n->eps, n->dtype);
  }
}

void silu_mul(const SiluMul *s) {
  const RowFunctions *f = row_functions();
  int64_t stride = s->width * dtype_bytes(s->dtype);
#pragma omp parallel for num_threads(threads_for(s->rows * s->width, s->threads))
  for (int64_t row = 0; row < s->rows; row++) {
    const char *gate = s->gate_up + 2 * row * stride;
    f->silu(gate, gate + stride, s->out + row * stride, s->width, s->dtype);
  }
}

/* Write a head's k and v of one token into its place in the block. */
static void store_token(const Cache *c, int64_t slot, int64_t head, const char *k, const char *v) {
  int64_t block = slot / BLOCK_TOKENS, place = slot % BLOCK_TOKENS, dim = c->head_dim;
  char *keys = key_block(c, block, head), *values = value_block(c, block, head);
  if (c->dtype == DTYPE_FP32) {
    for (int64_t d = 0; d < dim; d++) ((float *)keys)[d * BLOCK_TOKENS + place] = ((const float *)k)[d];
    memcpy(values + place * dim * 4, v, (size_t)dim * 4);
    return;
  }
  /* A pair of dimensions of k is four bytes. */
  for (int64_t pair = 0; pair < dim / 2; pair++)
    memcpy(keys + (pair * BLOCK_TOKENS + place) * 4, k + pair * 4, 4);
  uint16_t *line = (uint16_t *)values + place / 2 * dim * 2 + place % 2;
  for (int64_t d = 0; d < dim; d++) line[2 * d] = ((const uint16_t *)v)[d];
}

static void rope_token(const RopeStore *r, const RowFunctions *f, int64_t token) {
  const Cache *c = &r->cache;
  int64_t stride = c->head_dim * dtype_bytes(c->dtype);
  char *row = r->qkv + token * (c->heads + 2 * c->kv_heads) * stride;
  const char *cosines = r->cosines + r->positions[token] * stride / 2;
  const char *sines = r->sines + r->positions[token] * stride / 2;
  for (int64_t head = 0; head < c->heads + c->kv_heads; head++) {
    char *x = row + head * stride;
    const char *norm = head < c->heads ? r->q_norm : r->k_norm;
    if (norm) f->norm(x, norm, x, c->head_dim, r->eps, c->dtype);
    f->rotate(x, cosines, sines, c->head_dim / 2, c->dtype);
  }
  const char *k = row + c->heads * stride, *v = k + c->kv_heads * stride;
  for (int64_t head = 0; head < c->kv_heads; head++)
    store_token(c, r->slots[token], head, k + head * stride, v + head * stride);
}

void rope_store(const RopeStore *r) {
  const RowFunctions *f = row_functions();
  const Cache *c = &r->cache;
  int64_t width = (c->heads + 2 * c->kv_heads) * c->head_dim;
#pragma omp parallel for num_threads(threads_for(r->tokens * width, r->threads))
  for (int64_t token = 0; token < r->tokens; token++) rope_token(r, f, token);
}
