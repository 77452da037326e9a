/* The attention tile for any processor: plain loops that a compiler can vectorise. */
#include "kernels.h"

/* scores[t] += the products of one line of K, over 16 tokens. */
static void score_block(const Tile *tile, int bf16, const char *q, const char *k, float *scores) {
  for (int t = 0; t < BLOCK_TOKENS; t++) scores[t] = 0.0f;
  if (bf16) {
    const uint16_t *query = (const uint16_t *)q, *line = (const uint16_t *)k;
    for (int64_t d = 0; d < tile->head_dim; d += 2, line += 2 * BLOCK_TOKENS) {
      float q0 = bf16_to_float(query[d]), q1 = bf16_to_float(query[d + 1]);
      for (int t = 0; t < BLOCK_TOKENS; t++)
        scores[t] += bf16_to_float(line[2 * t]) * q0 + bf16_to_float(line[2 * t + 1]) * q1;
    }
  } else {
    const float *query = (const float *)q, *line = (const float *)k;
    for (int64_t d = 0; d < tile->head_dim; d++, line += BLOCK_TOKENS)
      for (int t = 0; t < BLOCK_TOKENS; t++) scores[t] += line[t] * query[d];
  }
}

/* mixed[d] += the weighted values of 16 tokens. */
static void mix_block(const Tile *tile, int bf16, const float *weights, const char *v, float *mixed) {
  int64_t dim = tile->head_dim;
  if (bf16) {
    const uint16_t *line = (const uint16_t *)v;
    for (int t = 0; t < BLOCK_TOKENS; t += 2, line += 2 * dim) {
      float w0 = weights[t], w1 = weights[t + 1];
      for (int64_t d = 0; d < dim; d++)
        mixed[d] += bf16_to_float(line[2 * d]) * w0 + bf16_to_float(line[2 * d + 1]) * w1;
    }
  } else {
    const float *line = (const float *)v;
    for (int t = 0; t < BLOCK_TOKENS; t++, line += dim)
      for (int64_t d = 0; d < dim; d++) mixed[d] += line[d] * weights[t];
  }
}

static void attend_row(const Tile *tile, int bf16, int row) {
  float scores[GROUP_TOKENS], peak = tile->top[row], sum = 0.0f;
  float *mixed = tile->mixed + row * tile->head_dim;
  int visible = tile->visible[row] < GROUP_TOKENS ? tile->visible[row] : GROUP_TOKENS;
  for (int b = 0; b < GROUP_BLOCKS; b++)
    score_block(tile, bf16, tile->q[row], tile->k[b], scores + b * BLOCK_TOKENS);
  for (int t = 0; t < visible; t++) {
    scores[t] *= tile->scale;
    peak = scores[t] > peak ? scores[t] : peak;
  }
  for (int t = 0; t < GROUP_TOKENS; t++) {
    float weight = t < visible ? exp2_fast(scores[t] - peak) : 0.0f;
    sum += weight;
    scores[t] = bf16 ? bf16_to_float(float_to_bf16(weight)) : weight;
  }
  float fade = exp2_fast(tile->top[row] - peak);
  tile->top[row] = peak;
  tile->total[row] = tile->total[row] * fade + sum;
  for (int64_t d = 0; d < tile->head_dim; d++) mixed[d] *= fade;
  for (int b = 0; b < GROUP_BLOCKS; b++)
    mix_block(tile, bf16, scores + b * BLOCK_TOKENS, tile->v[b], mixed);
}

static void tile_bf16(const Tile *tile) {
  for (int row = 0; row < tile->rows; row++)
    if (tile->visible[row] > 0) attend_row(tile, 1, row);
}

static void tile_fp32(const Tile *tile) {
  for (int row = 0; row < tile->rows; row++)
    if (tile->visible[row] > 0) attend_row(tile, 0, row);
}

TileFunction portable_tile(Dtype dtype) { return dtype == DTYPE_BF16 ? tile_bf16 : tile_fp32; }
