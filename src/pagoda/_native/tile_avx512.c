/* The attention tile in AVX-512: up to six query rows share every line of K and V.
 *
 * bf16 and fp32 differ in the product alone. In both, a step advances q and the weights by
 * four bytes (a pair of bf16, one fp32) and K by a line of 64 bytes, 16 tokens; a step of V
 * is a line of head_dim × 4 bytes. Each score and each mixed value has one accumulator and a
 * fixed order, so a row's bits do not depend on the tile it is in. head_dim: multiple of 16.
 */
#include "kernels.h"

#if defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 10)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))
#define INLINE TARGET static inline __attribute__((always_inline))
enum { LANES = 16 };

INLINE __m512 product(const int bf16, __m512 sum, __m512i line, __m512i one) {
  return bf16 ? _mm512_dpbf16_ps(sum, (__m512bh)line, (__m512bh)one)
              : _mm512_fmadd_ps(_mm512_castsi512_ps(line), _mm512_castsi512_ps(one), sum);
}

INLINE __m512i broadcast(const char *from) {
  int32_t bits;
  memcpy(&bits, from, sizeof bits);
  return _mm512_set1_epi32(bits);
}

INLINE __m512 exp2_lanes(__m512 x) {
  x = _mm512_max_ps(x, _mm512_set1_ps(-200.0f)); /* far below the smallest power, yet finite */
  __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 f = _mm512_sub_ps(x, whole);
  __m512 p = _mm512_set1_ps(EXP2_C6);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP2_C5));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP2_C4));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP2_C3));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP2_C2));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP2_C1));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, whole);
}

INLINE void score(const Tile *t, const int bf16, const int rows, __m512 s[TILE_ROWS][GROUP_BLOCKS]) {
  const int64_t steps = bf16 ? t->head_dim / 2 : t->head_dim;
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int b = 0; b < GROUP_BLOCKS; b++) s[r][b] = _mm512_setzero_ps();
  for (int64_t step = 0; step < steps; step++) {
    __m512i k[GROUP_BLOCKS];
#pragma GCC unroll 4
    for (int b = 0; b < GROUP_BLOCKS; b++) k[b] = _mm512_loadu_si512(t->k[b] + 64 * step);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
      __m512i q = broadcast(t->q[r] + 4 * step);
#pragma GCC unroll 4
      for (int b = 0; b < GROUP_BLOCKS; b++) s[r][b] = product(bf16, s[r][b], k[b], q);
    }
  }
}

/* Turn a row's scores into weights (bf16 or fp32, 4 bytes a step); returns the fade. */
INLINE float weigh(const Tile *t, const int bf16, int row, const __m512 in[GROUP_BLOCKS], char *weights) {
  int seen = t->visible[row] < 0 ? 0 : t->visible[row] > GROUP_TOKENS ? GROUP_TOKENS : t->visible[row];
  uint64_t mask = seen == GROUP_TOKENS ? ~0ull : (1ull << seen) - 1;
  const __m512 nothing = _mm512_set1_ps(NOTHING_YET), scale = _mm512_set1_ps(t->scale);
  __m512 s[GROUP_BLOCKS], w[GROUP_BLOCKS];
#pragma GCC unroll 4
  for (int b = 0; b < GROUP_BLOCKS; b++)
    s[b] = _mm512_mask_mul_ps(nothing, (__mmask16)(mask >> (b * LANES)), in[b], scale);
  __m512 most = _mm512_max_ps(_mm512_max_ps(s[0], s[1]), _mm512_max_ps(s[2], s[3]));
  float before = t->top[row], peak = _mm512_reduce_max_ps(most);
  peak = peak > before ? peak : before;
#pragma GCC unroll 4
  for (int b = 0; b < GROUP_BLOCKS; b++)
    w[b] = _mm512_maskz_mov_ps((__mmask16)(mask >> (b * LANES)),
                               exp2_lanes(_mm512_sub_ps(s[b], _mm512_set1_ps(peak))));
  float fade = _mm512_cvtss_f32(exp2_lanes(_mm512_set1_ps(before - peak)));
  __m512 sum = _mm512_add_ps(_mm512_add_ps(w[0], w[1]), _mm512_add_ps(w[2], w[3]));
  t->top[row] = peak;
  t->total[row] = t->total[row] * fade + _mm512_reduce_add_ps(sum);
  if (bf16) {
    _mm512_storeu_si512(weights, (__m512i)_mm512_cvtne2ps_pbh(w[1], w[0]));
    _mm512_storeu_si512(weights + 64, (__m512i)_mm512_cvtne2ps_pbh(w[3], w[2]));
  } else {
#pragma GCC unroll 4
    for (int b = 0; b < GROUP_BLOCKS; b++) _mm512_storeu_ps(weights + 64 * b, w[b]);
  }
  return fade;
}

enum { WEIGHTS_BYTES = GROUP_TOKENS * 4 };

/* Mix `wide` × 16 dimensions from `first` on, for all rows. */
INLINE void mix(const Tile *t, const int bf16, const int rows, const int wide, int64_t first,
                const float *fade, char (*weights)[WEIGHTS_BYTES]) {
  const int steps = bf16 ? BLOCK_TOKENS / 2 : BLOCK_TOKENS;
  const int64_t line = 4 * t->head_dim;
  __m512 m[TILE_ROWS][4];
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int c = 0; c < wide; c++)
      m[r][c] = _mm512_mul_ps(_mm512_loadu_ps(t->mixed + r * t->head_dim + first + c * LANES),
                              _mm512_set1_ps(fade[r]));
  for (int b = 0; b < GROUP_BLOCKS; b++) {
    const char *v = t->v[b] + 4 * first;
    for (int step = 0; step < steps; step++, v += line) {
      __m512i values[4];
#pragma GCC unroll 4
      for (int c = 0; c < wide; c++) values[c] = _mm512_loadu_si512(v + 64 * c);
#pragma GCC unroll 6
      for (int r = 0; r < rows; r++) {
        __m512i w = broadcast(weights[r] + 4 * (b * steps + step));
#pragma GCC unroll 4
        for (int c = 0; c < wide; c++) m[r][c] = product(bf16, m[r][c], values[c], w);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int c = 0; c < wide; c++)
      _mm512_storeu_ps(t->mixed + r * t->head_dim + first + c * LANES, m[r][c]);
}

INLINE void attend_rows(const Tile *t, const int bf16, const int rows) {
  __m512 s[TILE_ROWS][GROUP_BLOCKS];
  float fade[TILE_ROWS];
  _Alignas(64) char weights[TILE_ROWS][WEIGHTS_BYTES];
  score(t, bf16, rows, s);
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) fade[r] = weigh(t, bf16, r, s[r], weights[r]);
  int64_t first = 0;
  for (; first + 4 * LANES <= t->head_dim; first += 4 * LANES) mix(t, bf16, rows, 4, first, fade, weights);
  for (; first < t->head_dim; first += LANES) mix(t, bf16, rows, 1, first, fade, weights);
}

INLINE void attend_tile(const Tile *t, const int bf16) {
  switch (t->rows) {
    case 1: attend_rows(t, bf16, 1); break;
    case 2: attend_rows(t, bf16, 2); break;
    case 3: attend_rows(t, bf16, 3); break;
    case 4: attend_rows(t, bf16, 4); break;
    case 5: attend_rows(t, bf16, 5); break;
    default: attend_rows(t, bf16, 6); break;
  }
}

TARGET static void tile_bf16(const Tile *t) { attend_tile(t, 1); }
TARGET static void tile_fp32(const Tile *t) { attend_tile(t, 0); }

TileFunction avx512_tile(Dtype dtype) { return dtype == DTYPE_BF16 ? tile_bf16 : tile_fp32; }

Isa best_isa(Dtype dtype) {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return ISA_PORTABLE;
  if (dtype == DTYPE_FP32) return ISA_AVX512;
  return __builtin_cpu_supports("avx512bf16") ? ISA_AVX512_BF16 : ISA_PORTABLE;
}

#else

TileFunction avx512_tile(Dtype dtype) {
  (void)dtype;
  return 0;
}

Isa best_isa(Dtype dtype) {
  (void)dtype;
  return ISA_PORTABLE;
}

#endif
