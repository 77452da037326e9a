/* XXH3-128 with seed 0 of payloads longer than 240 bytes, canonical, as docs/design/format.md
 * has it; python-xxhash has the rest. Many payloads cost one turn of the interpreter lock, where
 * a turn each would wait for an engine's scheduler each time.
 *
 * Reference: Y. Collet, xxHash specification 0.2, "XXH3 algorithm", long inputs.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#include "tables.h"

enum { SHORT_BYTES = 240, STRIPE_BYTES = 64, LANES = 8, SECRET_BYTES = 192, DIGEST_BYTES = 16 };
enum { BLOCK_STRIPES = (SECRET_BYTES - STRIPE_BYTES) / 8, BLOCK_BYTES = BLOCK_STRIPES * STRIPE_BYTES };
enum { SECRET_LAST = 7, SECRET_MERGE = 11 }; /* how far from its ends the secret is read at the end */

static const uint64_t PRIME32_1 = 0x9E3779B1u, PRIME32_2 = 0x85EBCA77u, PRIME32_3 = 0xC2B2AE3Du;
static const uint64_t PRIME64_1 = 0x9E3779B185EBCA87u, PRIME64_2 = 0xC2B2AE3D27D4EB4Fu;
static const uint64_t PRIME64_3 = 0x165667B19E3779F9u, PRIME64_4 = 0x85EBCA77C2B2AE63u;
static const uint64_t PRIME64_5 = 0x27D4EB2F165667C5u, AVALANCHE = 0x165667919E3779F9u;

static const uint8_t SECRET[SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EACH_ISA
#endif

static inline uint64_t word(const uint8_t *at) {
  uint64_t value;
  memcpy(&value, at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  value = __builtin_bswap64(value);
#endif
  return value;
}

/* Stripes behind each other; the secret moves on by a word a stripe. */
static inline __attribute__((always_inline)) void add_stripes(uint64_t *restrict sums, const uint8_t *at, int64_t stripes,
                                                              const uint8_t *secret) {
  for (int64_t s = 0; s < stripes; s++, at += STRIPE_BYTES, secret += 8) {
    __builtin_prefetch(at + 512);
    for (int i = 0; i < LANES; i++) {
      const uint64_t data = word(at + 8 * i), keyed = data ^ word(secret + 8 * i);
      sums[i] += word(at + 8 * (i ^ 1)) + (keyed & 0xFFFFFFFFu) * (keyed >> 32);
    }
  }
}

/* All of a payload but for what becomes of its lanes: whole blocks, whole stripes behind them, and
 * the last 64 bytes, which may have been seen already. */
EACH_ISA static void accumulate(uint64_t *restrict lanes, const uint8_t *restrict at, int64_t bytes) {
  const uint8_t *end = at + bytes;
  uint64_t sums[LANES];
  memcpy(sums, lanes, sizeof sums);
  for (int64_t blocks = (bytes - 1) / BLOCK_BYTES; blocks; blocks--, at += BLOCK_BYTES) {
    add_stripes(sums, at, BLOCK_STRIPES, SECRET);
    for (int i = 0; i < LANES; i++) {
      const uint64_t key = word(SECRET + SECRET_BYTES - STRIPE_BYTES + 8 * i);
      sums[i] = (sums[i] ^ (sums[i] >> 47) ^ key) * PRIME32_1;
    }
  }
  add_stripes(sums, at, (end - at - 1) / STRIPE_BYTES, SECRET);
  add_stripes(sums, end - STRIPE_BYTES, 1, SECRET + SECRET_BYTES - STRIPE_BYTES - SECRET_LAST);
  memcpy(lanes, sums, sizeof sums);
}

static uint64_t folded(uint64_t a, uint64_t b) {
  const unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t merged(const uint64_t *lanes, const uint8_t *secret, uint64_t sum) {
  for (int i = 0; i < LANES; i += 2)
    sum += folded(lanes[i] ^ word(secret + 8 * i), lanes[i + 1] ^ word(secret + 8 * i + 8));
  sum ^= sum >> 37;
  sum *= AVALANCHE;
  return sum ^ (sum >> 32);
}

static void big_endian(uint64_t value, uint8_t *into) {
  for (int i = 0; i < 8; i++) into[i] = (uint8_t)(value >> (56 - 8 * i));
}

static void digest_of(const uint8_t *at, int64_t bytes, uint8_t *into) {
  uint64_t lanes[LANES] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
  accumulate(lanes, at, bytes);
  const uint64_t low = merged(lanes, SECRET + SECRET_MERGE, (uint64_t)bytes * PRIME64_1);
  const uint64_t high = merged(lanes, SECRET + SECRET_BYTES - STRIPE_BYTES - SECRET_MERGE, ~((uint64_t)bytes * PRIME64_2));
  big_endian(high, into);
  big_endian(low, into + 8);
}

/* digests(payloads): the digest of each, in a list; ValueError for one of 240 bytes or fewer. */
PyObject *py_digests(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  (void)self;
  if (!takes("digests", count, 1)) return NULL;
  PyObject *payloads = PySequence_Fast(args[0], "payloads must be a sequence");
  if (!payloads) return NULL;
  const Py_ssize_t wanted = PySequence_Fast_GET_SIZE(payloads);
  Py_buffer *views = PyMem_Calloc(wanted + 1, sizeof *views);
  uint8_t *found = PyMem_Malloc(wanted * DIGEST_BYTES + 1);
  PyObject *list = NULL;
  Py_ssize_t held = 0;
  if (!views || !found) {
    PyErr_NoMemory();
    goto end;
  }
  for (; held < wanted; held++) {
    if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(payloads, held), &views[held], PyBUF_SIMPLE) < 0) goto end;
    if (views[held].len > SHORT_BYTES) continue;
    PyErr_Format(PyExc_ValueError, "a payload of %zd bytes is too short", views[held++].len);
    goto end;
  }
  Py_BEGIN_ALLOW_THREADS;
  for (Py_ssize_t i = 0; i < wanted; i++) digest_of(views[i].buf, views[i].len, found + i * DIGEST_BYTES);
  Py_END_ALLOW_THREADS;
  list = PyList_New(wanted);
  for (Py_ssize_t i = 0; list && i < wanted; i++) {
    PyObject *digest = PyBytes_FromStringAndSize((char *)found + i * DIGEST_BYTES, DIGEST_BYTES);
    if (!digest) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, digest);
  }
end:
  while (held) PyBuffer_Release(&views[--held]);
  PyMem_Free(views);
  PyMem_Free(found);
  Py_DECREF(payloads);
  return list;
}
