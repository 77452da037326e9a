/* pagoda._native: Python's door to the kernels, and to the tables of core.state.
 *
 * The kernels' functions take plain integers (addresses are torch's data_ptr) and release the
 * interpreter lock. Every argument is checked before memory is touched: TypeError for a
 * wrong type or count, ValueError for a value out of range, a null or misaligned address, a
 * block or position out of bounds. What cannot be checked is that an address points to as
 * many bytes as the sizes say: engine/native.py answers for that.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernels.h"
#include "tables.h"

enum { MOST_ROWS = 1 << 24, MOST_WIDTH = 1 << 24, MOST_HEADS = 4096, MOST_HEAD_DIM = 1024 };

/* Reads arguments in order; after the first bad one, `failed` stays set. */
typedef struct {
  PyObject *const *args;
  Py_ssize_t count, next;
  int failed;
} Reader;

static Reader reader(PyObject *const *args, Py_ssize_t count, Py_ssize_t wanted, const char *function) {
  Reader r = {args, count, 0, 0};
  if (count != wanted) {
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", function, wanted, count);
    r.failed = 1;
  }
  return r;
}

static int64_t whole(Reader *r, const char *name, int64_t least, int64_t most) {
  if (r->failed) return least;
  PyObject *object = r->args[r->next++];
  if (!PyLong_Check(object)) {
    PyErr_Format(PyExc_TypeError, "%s must be an int, not %s", name, Py_TYPE(object)->tp_name);
    r->failed = 1;
    return least;
  }
  int overflow = 0;
  long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow || value < least || value > most) {
    PyErr_Format(PyExc_ValueError, "%s is out of range: %R", name, object);
    r->failed = 1;
    return least;
  }
  return value;
}

static float fraction(Reader *r, const char *name) {
  if (r->failed) return 0.0f;
  PyObject *object = r->args[r->next++];
  if (!PyFloat_Check(object)) {
    PyErr_Format(PyExc_TypeError, "%s must be a float, not %s", name, Py_TYPE(object)->tp_name);
    r->failed = 1;
    return 0.0f;
  }
  double value = PyFloat_AS_DOUBLE(object);
  if (!(value >= 0.0 && value <= 1.0)) {
    PyErr_Format(PyExc_ValueError, "%s is out of range: %R", name, object);
    r->failed = 1;
  }
  return (float)value;
}

/* An address, aligned for elements of `bytes`; 0 only where `optional`. */
static char *address(Reader *r, const char *name, int bytes, int optional) {
  int64_t value = whole(r, name, 0, INT64_MAX);
  if (r->failed || (value == 0 && optional)) return NULL;
  if (value < 4096 || value % bytes) {
    PyErr_Format(PyExc_ValueError, "%s is not an address aligned to %d bytes", name, bytes);
    r->failed = 1;
    return NULL;
  }
  return (char *)(uintptr_t)value;
}

static Dtype dtype_argument(Reader *r) { return (Dtype)whole(r, "dtype", DTYPE_FP32, DTYPE_BF16); }

static int threads_argument(Reader *r) { return (int)whole(r, "threads", 1, 1024); }

static int refuse(Reader *r, const char *message) {
  PyErr_SetString(PyExc_ValueError, message);
  r->failed = 1;
  return 0;
}

static Cache cache_arguments(Reader *r) {
  Cache c = {.dtype = dtype_argument(r)};
  c.heads = whole(r, "heads", 1, MOST_HEADS);
  c.kv_heads = whole(r, "kv_heads", 1, MOST_HEADS);
  c.head_dim = whole(r, "head_dim", 2, MOST_HEAD_DIM);
  c.pool = address(r, "pool", 64, 0);
  c.num_blocks = whole(r, "num_blocks", 1, INT32_MAX / BLOCK_TOKENS);
  c.block_bytes = whole(r, "block_bytes", 64, INT64_C(1) << 40);
  c.layer_offset = whole(r, "layer_offset", 0, INT64_C(1) << 40);
  if (r->failed) return c;
  if (c.heads % c.kv_heads) refuse(r, "heads is not a multiple of kv_heads");
  else if (c.head_dim % 2) refuse(r, "head_dim is odd");
  else if (c.block_bytes % 64 || c.layer_offset % 64) refuse(r, "a block or layer is not aligned to 64 bytes");
  else if (c.layer_offset + 2 * c.kv_heads * head_bytes(&c) > c.block_bytes) refuse(r, "the layer does not fit its block");
  return c;
}

static Batch batch_arguments(Reader *r) {
  Batch b = {.segments = whole(r, "segments", 1, MOST_ROWS)};
  b.offsets = (const int32_t *)address(r, "offsets", 4, 0);
  b.starts = (const int32_t *)address(r, "starts", 4, 0);
  b.table_offsets = (const int32_t *)address(r, "table_offsets", 4, 0);
  b.tables = (const int32_t *)address(r, "tables", 4, 0);
  return b;
}

/* The lists inside a batch: ascending offsets, tables that cover their segments, known blocks. */
static int batch_is_sound(Reader *r, const Batch *b, int64_t rows, int64_t num_blocks) {
  if (b->offsets[0] != 0 || b->table_offsets[0] != 0 || b->offsets[b->segments] != rows)
    return refuse(r, "offsets do not span the rows");
  for (int64_t s = 0; s < b->segments; s++) {
    int64_t length = (int64_t)b->offsets[s + 1] - b->offsets[s];
    int64_t blocks = (int64_t)b->table_offsets[s + 1] - b->table_offsets[s];
    if (length < 1 || b->starts[s] < 0 || b->offsets[s + 1] > rows) return refuse(r, "a segment is empty or out of range");
    if (blocks < 0 || blocks * BLOCK_TOKENS < b->starts[s] + length) return refuse(r, "a block table is too short");
    for (int64_t i = b->table_offsets[s]; i < b->table_offsets[s + 1]; i++)
      if (b->tables[i] < 0 || b->tables[i] >= num_blocks) return refuse(r, "a block id is out of range");
  }
  return 1;
}

static PyObject *py_attend(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  (void)self;
  Reader r = reader(args, count, 18, "attend");
  Attention a = {.isa = (Isa)whole(&r, "isa", ISA_PORTABLE, ISA_AVX512_BF16), .threads = threads_argument(&r)};
  a.cache = cache_arguments(&r);
  a.batch = batch_arguments(&r);
  int64_t rows = whole(&r, "rows", 1, MOST_ROWS);
  int bytes = dtype_bytes(a.cache.dtype);
  a.qkv = address(&r, "qkv", bytes, 0);
  a.out = address(&r, "out", bytes, 0);
  a.qkv_stride = (a.cache.heads + 2 * a.cache.kv_heads) * a.cache.head_dim;
  if (r.failed || !batch_is_sound(&r, &a.batch, rows, a.cache.num_blocks)) return NULL;
  if (a.isa > best_isa(a.cache.dtype)) a.isa = ISA_PORTABLE;
  if (a.cache.head_dim % 16) a.isa = ISA_PORTABLE;
  int result;
  Py_BEGIN_ALLOW_THREADS;
  result = attend(&a);
  Py_END_ALLOW_THREADS;
  if (result < 0) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

static PyObject *py_rope_store(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  (void)self;
  Reader r = reader(args, count, 19, "rope_store");
  RopeStore s = {.threads = threads_argument(&r)};
  s.cache = cache_arguments(&r);
  int bytes = dtype_bytes(s.cache.dtype);
  s.tokens = whole(&r, "tokens", 1, MOST_ROWS);
  s.qkv = address(&r, "qkv", bytes, 0);
  s.cosines = address(&r, "cosines", bytes, 0);
  s.sines = address(&r, "sines", bytes, 0);
  int64_t table_rows = whole(&r, "table_rows", 1, INT32_MAX);
  s.q_norm = address(&r, "q_norm", bytes, 1);
  s.k_norm = address(&r, "k_norm", bytes, 1);
  s.eps = fraction(&r, "eps");
  s.positions = (const int32_t *)address(&r, "positions", 4, 0);
  s.slots = (const int32_t *)address(&r, "slots", 4, 0);
  for (int64_t t = 0; !r.failed && t < s.tokens; t++) {
    if (s.positions[t] < 0 || s.positions[t] >= table_rows) refuse(&r, "a position is out of range");
    else if (s.slots[t] < 0 || s.slots[t] / BLOCK_TOKENS >= s.cache.num_blocks) refuse(&r, "a slot is out of range");
  }
  if (r.failed) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  rope_store(&s);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

static PyObject *py_add_norm(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  (void)self;
  Reader r = reader(args, count, 9, "add_norm");
  AddNorm n = {.dtype = dtype_argument(&r), .threads = threads_argument(&r)};
  int bytes = dtype_bytes(n.dtype);
  n.rows = whole(&r, "rows", 1, MOST_ROWS);
  n.width = whole(&r, "width", 1, MOST_WIDTH);
  n.residual = address(&r, "residual", bytes, 0);
  n.delta = address(&r, "delta", bytes, 1);
  n.weight = address(&r, "weight", bytes, 0);
  n.eps = fraction(&r, "eps");
  n.out = address(&r, "out", bytes, 0);
  if (r.failed) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  add_norm(&n);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

static PyObject *py_silu_mul(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  (void)self;
  Reader r = reader(args, count, 6, "silu_mul");
  SiluMul s = {.dtype = dtype_argument(&r), .threads = threads_argument(&r)};
  int bytes = dtype_bytes(s.dtype);
  s.rows = whole(&r, "rows", 1, MOST_ROWS);
  s.width = whole(&r, "width", 1, MOST_WIDTH);
  s.gate_up = address(&r, "gate_up", bytes, 0);
  s.out = address(&r, "out", bytes, 0);
  if (r.failed) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  silu_mul(&s);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

static PyObject *py_best_isa(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  (void)self;
  Reader r = reader(args, count, 1, "best_isa");
  Dtype dtype = dtype_argument(&r);
  return r.failed ? NULL : PyLong_FromLong(best_isa(dtype));
}

#define CACHE "dtype, heads, kv_heads, head_dim, pool, num_blocks, block_bytes, layer_offset"
#define METHOD(name, text) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, text}
static PyMethodDef methods[] = {
    METHOD(attend, "attend(isa, threads, " CACHE ", segments, offsets, starts, table_offsets, tables, rows, qkv, out)"),
    METHOD(rope_store, "rope_store(threads, " CACHE ", tokens, qkv, cosines, sines, table_rows, q_norm, k_norm, eps, positions, slots)"),
    METHOD(add_norm, "add_norm(dtype, threads, rows, width, residual, delta, weight, eps, out)"),
    METHOD(silu_mul, "silu_mul(dtype, threads, rows, width, gate_up, out)"),
    METHOD(best_isa, "best_isa(dtype): 0 portable, 1 AVX-512, 2 AVX-512 with bf16 products"),
    METHOD(digests, "digests(payloads): XXH3-128 of each, canonical; payloads of more than 240 bytes"),
    METHOD(read_payloads, "read_payloads(fd, buffers, offsets): fill each buffer from its offset; bytes read, for each"),
    METHOD(release, "release(slots, leases, states, settled): give leases back; slots that leave another state"),
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec) {
  PyObject *type = PyType_FromSpec(spec);
  int added = type ? PyModule_AddObjectRef(module, name, type) : -1;
  Py_XDECREF(type);
  return added;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "pagoda._native", "Pagoda's hot parts in C.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) {
  PyObject *module = PyModule_Create(&definition);
  if (!module) return NULL;
#ifdef _OPENMP
  const int openmp = 1;
#else
  const int openmp = 0;
#endif
  if (PyModule_AddIntConstant(module, "OPENMP", openmp) < 0 || add_type(module, "KeyIndex", &key_index_spec) < 0 ||
      add_type(module, "Recency", &recency_spec) < 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
