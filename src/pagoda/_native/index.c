/* KeyIndex: from a block's 32-byte key to its slot, for a fixed number of slots.
 *
 * Open addressing with linear probing over 1.5 buckets a slot; removal shifts back, so there
 * are no tombstones. A bucket is a slot and 32 bits of the key's hash: most probes end without
 * touching the key. Keys are kept by slot. Keys are cryptographic digests, so a cheap mix of
 * their bits spreads them evenly. A look-up of a whole prefix asks memory for all of a group's
 * buckets, then for all of its keys, before it waits for either.
 *
 * core/keyindex.py says what each method promises and has the same in Python.
 */
#include "tables.h"

#include <string.h>

enum { GROUP = 16 };

typedef struct {
  int32_t slot; /* EMPTY, or the slot */
  uint32_t tag;
} Bucket;

typedef struct {
  PyObject_HEAD
  int64_t slots, used, buckets;
  Bucket *table;
  uint8_t (*keys)[KEY_BYTES];
} KeyIndex;

enum { EMPTY = -1 };

static uint64_t hash_of(const uint8_t *key) {
  uint64_t head, tail;
  memcpy(&head, key, 8);
  memcpy(&tail, key + KEY_BYTES - 8, 8);
  uint64_t mixed = (head ^ (tail << 32 | tail >> 32)) * UINT64_C(0x9E3779B97F4A7C15);
  return mixed ^ mixed >> 29;
}

static uint32_t tag_of(uint64_t hash) { return (uint32_t)hash; }

static int64_t home_of(const KeyIndex *index, uint64_t hash) {
  return (int64_t)((hash >> 32) * (uint64_t)index->buckets >> 32);
}

static int64_t next_bucket(const KeyIndex *index, int64_t at) { return at + 1 == index->buckets ? 0 : at + 1; }

/* The bucket of `key`, or the empty one that ends its probe. */
static int64_t find(const KeyIndex *index, const uint8_t *key, uint64_t hash) {
  int64_t at = home_of(index, hash);
  uint32_t tag = tag_of(hash);
  for (; index->table[at].slot != EMPTY; at = next_bucket(index, at))
    if (index->table[at].tag == tag && !memcmp(index->keys[index->table[at].slot], key, KEY_BYTES)) break;
  return at;
}

/* Empty a bucket, and move back what was probed past it. */
static void erase(KeyIndex *index, int64_t hole) {
  for (int64_t at = next_bucket(index, hole); index->table[at].slot != EMPTY; at = next_bucket(index, at)) {
    int64_t home = home_of(index, hash_of(index->keys[index->table[at].slot]));
    int stays = hole <= at ? hole < home && home <= at : hole < home || home <= at;
    if (stays) continue;
    index->table[hole] = index->table[at];
    hole = at;
  }
  index->table[hole].slot = EMPTY;
  index->used--;
}

/* The bucket that leads to `slot`, or -1. */
static int64_t bucket_of(const KeyIndex *index, int32_t slot) {
  const uint8_t *key = index->keys[slot];
  int64_t at = find(index, key, hash_of(key));
  return index->table[at].slot == slot ? at : -1;
}

/* A slot has one key: whatever led to it before does so no more. */
static int insert(KeyIndex *index, const uint8_t *key, int32_t slot) {
  uint64_t hash = hash_of(key);
  if (index->table[find(index, key, hash)].slot != EMPTY) return 0;
  int64_t before = bucket_of(index, slot);
  if (before >= 0) erase(index, before);
  index->table[find(index, key, hash)] = (Bucket){slot, tag_of(hash)};
  memcpy(index->keys[slot], key, KEY_BYTES);
  index->used++;
  return 1;
}

static const uint8_t *key_argument(PyObject *object) {
  if (PyBytes_CheckExact(object) && PyBytes_GET_SIZE(object) == KEY_BYTES) return (const uint8_t *)PyBytes_AS_STRING(object);
  PyErr_SetString(PyExc_TypeError, "a key is 32 bytes");
  return NULL;
}

/* Slots of the first `count` keys (at most GROUP), up to the first absent one; -1 on a bad key. */
static int find_group(const KeyIndex *index, PyObject **keys, int count, int32_t *slots) {
  const uint8_t *key[GROUP];
  uint64_t hash[GROUP];
  for (int i = 0; i < count; i++) {
    if (!(key[i] = key_argument(keys[i]))) return -1;
    hash[i] = hash_of(key[i]);
    __builtin_prefetch(&index->table[home_of(index, hash[i])]);
  }
  for (int i = 0; i < count; i++) {
    const Bucket *bucket = &index->table[home_of(index, hash[i])];
    if (bucket->slot != EMPTY) __builtin_prefetch(index->keys[bucket->slot]);
  }
  for (int i = 0; i < count; i++) {
    slots[i] = index->table[find(index, key[i], hash[i])].slot;
    if (slots[i] == EMPTY) return i;
  }
  return count;
}

/* Slots of the longest prefix that is known and whose slots' `states` are all `wanted`; with
 * `leases`, one more lease on each. */
static PyObject *longest_prefix(KeyIndex *index, PyObject *sequence, const Bytes *states, int32_t *leases) {
  PyObject *keys = PySequence_Fast(sequence, "keys must be a sequence");
  if (!keys) return NULL;
  PyObject *found = PyList_New(0);
  Py_ssize_t total = PySequence_Fast_GET_SIZE(keys);
  int32_t slots[GROUP];
  for (Py_ssize_t first = 0; found && first < total; first += GROUP) {
    int asked = (int)(total - first < GROUP ? total - first : GROUP);
    int known = find_group(index, PySequence_Fast_ITEMS(keys) + first, asked, slots);
    int sound = 0;
    while (sound < known && states->at[slots[sound]] == states->wanted) sound++;
    if (known < 0 || append_slots(found, slots, sound) < 0) Py_CLEAR(found);
    for (int i = 0; found && leases && i < sound; i++) leases[slots[i]]++;
    if (sound < asked) break;
  }
  Py_DECREF(keys);
  return found;
}

static PyObject *index_prefix(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  KeyIndex *index = (KeyIndex *)self;
  Bytes states;
  if (!takes("prefix", count, 3) || !bytes_array(args[1], args[2], index->slots, &states)) return NULL;
  PyObject *found = longest_prefix(index, args[0], &states, NULL);
  PyBuffer_Release(&states.view);
  return found;
}

static PyObject *index_lease_prefix(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  KeyIndex *index = (KeyIndex *)self;
  Bytes states;
  Array leases;
  if (!takes("lease_prefix", count, 4) || !bytes_array(args[1], args[2], index->slots, &states)) return NULL;
  PyObject *found = NULL;
  if (int32_array(args[3], index->slots, &leases)) {
    found = longest_prefix(index, args[0], &states, leases.at);
    PyBuffer_Release(&leases.view);
  }
  PyBuffer_Release(&states.view);
  return found;
}

static PyObject *index_get(PyObject *self, PyObject *object) {
  KeyIndex *index = (KeyIndex *)self;
  const uint8_t *key = key_argument(object);
  if (!key) return NULL;
  int32_t slot = index->table[find(index, key, hash_of(key))].slot;
  if (slot == EMPTY) Py_RETURN_NONE;
  return PyLong_FromLong(slot);
}

static PyObject *index_add(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  KeyIndex *index = (KeyIndex *)self;
  const uint8_t *key;
  int32_t slot;
  if (!takes("add", count, 2) || !(key = key_argument(args[0])) || !slot_argument(args[1], index->slots, &slot)) return NULL;
  return PyBool_FromLong(insert(index, key, slot));
}

static PyObject *index_add_many(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  KeyIndex *index = (KeyIndex *)self;
  Array slots;
  Py_buffer keys;
  if (!takes("add_many", count, 2) || PyObject_GetBuffer(args[0], &keys, PyBUF_SIMPLE) < 0) return NULL;
  PyObject *result = NULL;
  if (int32_array(args[1], keys.len / KEY_BYTES, &slots)) {
    int64_t at = 0;
    for (; at < slots.count; at++)
      if (slots.at[at] < 0 || slots.at[at] >= index->slots || !insert(index, (const uint8_t *)keys.buf + at * KEY_BYTES, slots.at[at])) break;
    if (at == slots.count) result = Py_NewRef(Py_None);
    else PyErr_Format(PyExc_ValueError, "entry %lld repeats a key or names no slot", (long long)at);
    PyBuffer_Release(&slots.view);
  }
  PyBuffer_Release(&keys);
  return result;
}

static PyObject *index_remove(PyObject *self, PyObject *object) {
  KeyIndex *index = (KeyIndex *)self;
  int32_t slot;
  if (!slot_argument(object, index->slots, &slot)) return NULL;
  int64_t at = bucket_of(index, slot);
  if (at < 0) {
    PyErr_Format(PyExc_KeyError, "no key leads to slot %d", (int)slot);
    return NULL;
  }
  erase(index, at);
  Py_RETURN_NONE;
}

static PyObject *index_key_at(PyObject *self, PyObject *object) {
  KeyIndex *index = (KeyIndex *)self;
  int32_t slot;
  if (!slot_argument(object, index->slots, &slot)) return NULL;
  return PyBytes_FromStringAndSize((const char *)index->keys[slot], KEY_BYTES);
}

static Py_ssize_t index_length(PyObject *self) { return ((KeyIndex *)self)->used; }

static PyObject *index_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  (void)keywords;
  long long slots;
  if (!PyArg_ParseTuple(args, "L:KeyIndex", &slots)) return NULL;
  if (slots < 0 || slots >= INT32_MAX) return PyErr_Format(PyExc_ValueError, "slots is out of range: %lld", slots);
  KeyIndex *index = (KeyIndex *)type->tp_alloc(type, 0);
  if (!index) return NULL;
  index->slots = slots;
  index->buckets = slots + slots / 2 + 2;
  index->table = PyMem_RawMalloc((size_t)index->buckets * sizeof *index->table);
  index->keys = PyMem_RawCalloc((size_t)slots + 1, sizeof *index->keys);
  if (!index->table || !index->keys) {
    Py_DECREF(index);
    return PyErr_NoMemory();
  }
  for (int64_t at = 0; at < index->buckets; at++) index->table[at].slot = EMPTY;
  return (PyObject *)index;
}

static void index_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyMem_RawFree(((KeyIndex *)self)->table);
  PyMem_RawFree(((KeyIndex *)self)->keys);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyMethodDef index_methods[] = {
    {"prefix", (PyCFunction)(void (*)(void))index_prefix, METH_FASTCALL, "prefix(keys, states, wanted) -> slots of the longest known prefix"},
    {"lease_prefix", (PyCFunction)(void (*)(void))index_lease_prefix, METH_FASTCALL, "lease_prefix(keys, states, wanted, leases) -> slots, one more lease on each"},
    {"get", index_get, METH_O, "get(key) -> slot or None"},
    {"add", (PyCFunction)(void (*)(void))index_add, METH_FASTCALL, "add(key, slot) -> False if the key is known; another key of the slot is forgotten"},
    {"add_many", (PyCFunction)(void (*)(void))index_add_many, METH_FASTCALL, "add_many(keys, slots): ValueError if one is known"},
    {"remove", index_remove, METH_O, "remove(slot): KeyError if no key leads to it"},
    {"key_at", index_key_at, METH_O, "key_at(slot) -> the last key that led to it"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot index_slots[] = {
    {Py_tp_new, index_new},
    {Py_tp_dealloc, index_dealloc},
    {Py_tp_methods, index_methods},
    {Py_sq_length, index_length},
    {0, NULL},
};

PyType_Spec key_index_spec = {"pagoda._native.KeyIndex", sizeof(KeyIndex), 0, Py_TPFLAGS_DEFAULT, index_slots};
