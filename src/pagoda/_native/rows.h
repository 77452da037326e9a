/* Functions of one row, compiled once per instruction set: include with ROW(name) and
 * ROW_TARGET defined. Sums run in LANES partial sums, added in order, whatever the
 * instruction set: every compilation gives the same bits. */

enum { ROW(LANES) = 16 };

ROW_TARGET static inline __attribute__((always_inline)) float ROW(load)(const char *row, int64_t i, const int bf16) {
  return bf16 ? bf16_to_float(((const uint16_t *)row)[i]) : ((const float *)row)[i];
}

ROW_TARGET static inline __attribute__((always_inline)) void ROW(store)(char *row, int64_t i, float value, const int bf16) {
  if (bf16)
    ((uint16_t *)row)[i] = float_to_bf16(value);
  else
    ((float *)row)[i] = value;
}

/* A value as it is after a store. */
ROW_TARGET static inline __attribute__((always_inline)) float ROW(rounded)(float value, const int bf16) {
  return bf16 ? bf16_to_float(float_to_bf16(value)) : value;
}

ROW_TARGET static inline __attribute__((always_inline)) void ROW(norm_any)(
    const char *in, const char *weight, char *out, int64_t width, float eps, const int bf16) {
  float partial[16] = {0}, sum = 0.0f;
  int64_t i = 0;
  for (; i + ROW(LANES) <= width; i += ROW(LANES))
    for (int lane = 0; lane < ROW(LANES); lane++) {
      float x = ROW(load)(in, i + lane, bf16);
      partial[lane] += x * x;
    }
  for (; i < width; i++) {
    float x = ROW(load)(in, i, bf16);
    partial[i % ROW(LANES)] += x * x;
  }
  for (int lane = 0; lane < ROW(LANES); lane++) sum += partial[lane];
  float scale = 1.0f / sqrtf(sum / (float)width + eps);
  for (i = 0; i < width; i++) {
    float normed = ROW(rounded)(ROW(load)(in, i, bf16) * scale, bf16);
    ROW(store)(out, i, ROW(load)(weight, i, bf16) * normed, bf16);
  }
}

ROW_TARGET static inline __attribute__((always_inline)) void ROW(add_any)(char *to, const char *delta, int64_t width, const int bf16) {
  for (int64_t i = 0; i < width; i++)
    ROW(store)(to, i, ROW(load)(to, i, bf16) + ROW(load)(delta, i, bf16), bf16);
}

ROW_TARGET static inline __attribute__((always_inline)) void ROW(silu_any)(
    const char *gate, const char *up, char *out, int64_t width, const int bf16) {
  for (int64_t i = 0; i < width; i++) {
    float g = ROW(load)(gate, i, bf16);
    float power = -1.4426950408889634f * g;
    float silu = g / (1.0f + exp2_fast(power > 126.0f ? 126.0f : power));
    ROW(store)(out, i, ROW(rounded)(silu, bf16) * ROW(load)(up, i, bf16), bf16);
  }
}

/* Rotate the pairs (i, i + half) of a head. */
ROW_TARGET static inline __attribute__((always_inline)) void ROW(rotate_any)(
    char *head, const char *cosines, const char *sines, int64_t half, const int bf16) {
  for (int64_t i = 0; i < half; i++) {
    float first = ROW(load)(head, i, bf16), second = ROW(load)(head, i + half, bf16);
    float c = ROW(load)(cosines, i, bf16), s = ROW(load)(sines, i, bf16);
    float low = ROW(rounded)(first * c, bf16) + ROW(rounded)(-second * s, bf16);
    float high = ROW(rounded)(second * c, bf16) + ROW(rounded)(first * s, bf16);
    ROW(store)(head, i, low, bf16);
    ROW(store)(head, i + half, high, bf16);
  }
}

ROW_TARGET static void ROW(norm)(const char *in, const char *weight, char *out, int64_t width, float eps, Dtype dtype) {
  if (dtype == DTYPE_BF16)
    ROW(norm_any)(in, weight, out, width, eps, 1);
  else
    ROW(norm_any)(in, weight, out, width, eps, 0);
}

ROW_TARGET static void ROW(add)(char *to, const char *delta, int64_t width, Dtype dtype) {
  if (dtype == DTYPE_BF16)
    ROW(add_any)(to, delta, width, 1);
  else
    ROW(add_any)(to, delta, width, 0);
}

ROW_TARGET static void ROW(silu)(const char *gate, const char *up, char *out, int64_t width, Dtype dtype) {
  if (dtype == DTYPE_BF16)
    ROW(silu_any)(gate, up, out, width, 1);
  else
    ROW(silu_any)(gate, up, out, width, 0);
}

ROW_TARGET static void ROW(rotate)(char *head, const char *cosines, const char *sines, int64_t half, Dtype dtype) {
  if (dtype == DTYPE_BF16)
    ROW(rotate_any)(head, cosines, sines, half, 1);
  else
    ROW(rotate_any)(head, cosines, sines, half, 0);
}

static const RowFunctions ROW(row_functions) = {ROW(norm), ROW(add), ROW(silu), ROW(rotate)};
