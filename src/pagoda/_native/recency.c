/* Recency: slots in the order of their last use, as a doubly linked list in two arrays.
 *
 * Also `release`, the arithmetic of giving leases back. core/recency.py and core/state.py say
 * what each promises and have the same in Python.
 */
#include "tables.h"

enum { ABSENT = -1 };

typedef struct {
  PyObject_HEAD
  int64_t slots, used;
  int32_t *older, *newer; /* [slots] is the ring's head: newer of it is the oldest slot */
} Recency;

static void unlink_slot(Recency *order, int32_t slot) {
  order->newer[order->older[slot]] = order->newer[slot];
  order->older[order->newer[slot]] = order->older[slot];
  order->newer[slot] = ABSENT;
  order->used--;
}

static void link_newest(Recency *order, int32_t slot) {
  int32_t head = (int32_t)order->slots, newest = order->older[head];
  order->older[slot] = newest;
  order->newer[slot] = head;
  order->newer[newest] = order->older[head] = slot;
  order->used++;
}

static PyObject *recency_touch(PyObject *self, PyObject *sequence) {
  Recency *order = (Recency *)self;
  PyObject *slots = PySequence_Fast(sequence, "slots must be a sequence");
  if (!slots) return NULL;
  for (Py_ssize_t i = PySequence_Fast_GET_SIZE(slots) - 1; i >= 0; i--) {
    int32_t slot;
    if (!slot_argument(PySequence_Fast_GET_ITEM(slots, i), order->slots, &slot)) break;
    if (order->newer[slot] != ABSENT) unlink_slot(order, slot);
    link_newest(order, slot);
  }
  Py_DECREF(slots);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

static PyObject *recency_remove(PyObject *self, PyObject *sequence) {
  Recency *order = (Recency *)self;
  PyObject *slots = PySequence_Fast(sequence, "slots must be a sequence");
  if (!slots) return NULL;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(slots); i++) {
    int32_t slot;
    if (!slot_argument(PySequence_Fast_GET_ITEM(slots, i), order->slots, &slot)) break;
    if (order->newer[slot] == ABSENT) {
      PyErr_Format(PyExc_KeyError, "slot %d is not in the order", (int)slot);
      break;
    }
    unlink_slot(order, slot);
  }
  Py_DECREF(slots);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

static PyObject *recency_oldest(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  Recency *order = (Recency *)self;
  Array leases;
  if (!takes("oldest", count, 2)) return NULL;
  long long wanted = PyLong_AsLongLong(args[0]);
  if ((wanted == -1 && PyErr_Occurred()) || !int32_array(args[1], order->slots, &leases)) return NULL;
  PyObject *found = PyList_New(0);
  int32_t head = (int32_t)order->slots;
  for (int32_t slot = order->newer[head]; found && slot != head && PyList_GET_SIZE(found) < wanted; slot = order->newer[slot])
    if (leases.at[slot] == 0 && append_slots(found, &slot, 1) < 0) Py_CLEAR(found);
  PyBuffer_Release(&leases.view);
  return found;
}

static PyObject *recency_slots(PyObject *self, PyObject *nothing) {
  (void)nothing;
  Recency *order = (Recency *)self;
  PyObject *found = PyList_New(0);
  int32_t head = (int32_t)order->slots;
  for (int32_t slot = order->newer[head]; found && slot != head; slot = order->newer[slot])
    if (append_slots(found, &slot, 1) < 0) Py_CLEAR(found);
  return found;
}

static Py_ssize_t recency_length(PyObject *self) { return ((Recency *)self)->used; }

static PyObject *recency_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  (void)keywords;
  long long slots;
  if (!PyArg_ParseTuple(args, "L:Recency", &slots)) return NULL;
  if (slots < 0 || slots >= INT32_MAX) return PyErr_Format(PyExc_ValueError, "slots is out of range: %lld", slots);
  Recency *order = (Recency *)type->tp_alloc(type, 0);
  if (!order) return NULL;
  order->slots = slots;
  order->older = PyMem_RawMalloc(((size_t)slots + 1) * sizeof *order->older);
  order->newer = PyMem_RawMalloc(((size_t)slots + 1) * sizeof *order->newer);
  if (!order->older || !order->newer) {
    Py_DECREF(order);
    return PyErr_NoMemory();
  }
  for (int64_t slot = 0; slot < slots; slot++) order->newer[slot] = ABSENT;
  order->older[slots] = order->newer[slots] = (int32_t)slots;
  return (PyObject *)order;
}

static void recency_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyMem_RawFree(((Recency *)self)->older);
  PyMem_RawFree(((Recency *)self)->newer);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyMethodDef recency_methods[] = {
    {"touch", recency_touch, METH_O, "touch(slots): used now, the last of them first"},
    {"remove", recency_remove, METH_O, "remove(slots): KeyError if one is not in the order"},
    {"oldest", (PyCFunction)(void (*)(void))recency_oldest, METH_FASTCALL, "oldest(count, leases) -> up to count slots without lease"},
    {"slots", recency_slots, METH_NOARGS, "slots() -> all of them, oldest first"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot recency_type_slots[] = {
    {Py_tp_new, recency_new},
    {Py_tp_dealloc, recency_dealloc},
    {Py_tp_methods, recency_methods},
    {Py_sq_length, recency_length},
    {0, NULL},
};

PyType_Spec recency_spec = {"pagoda._native.Recency", sizeof(Recency), 0, Py_TPFLAGS_DEFAULT, recency_type_slots};

/* release(slots, leases, states, settled) -> slots whose last lease went and whose state is not
 * `settled`; ValueError, with nothing released, if a slot has fewer leases than are given back. */
PyObject *py_release(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  (void)self;
  if (!takes("release", count, 4)) return NULL;
  Py_buffer states;
  Array leases;
  long settled = PyLong_AsLong(args[3]);
  if (settled == -1 && PyErr_Occurred()) return NULL;
  PyObject *slots = PySequence_Fast(args[0], "slots must be a sequence");
  if (!slots) return NULL;
  if (PyObject_GetBuffer(args[2], &states, PyBUF_SIMPLE) < 0) {
    Py_DECREF(slots);
    return NULL;
  }
  PyObject *last = NULL;
  if (int32_array(args[1], states.len, &leases)) {
    Py_ssize_t total = PySequence_Fast_GET_SIZE(slots), done = 0;
    last = PyList_New(0);
    int32_t slot = 0;
    for (; last && done < total; done++) {
      if (!slot_argument(PySequence_Fast_GET_ITEM(slots, done), states.len, &slot)) break;
      if (leases.at[slot] <= 0) {
        PyErr_Format(PyExc_ValueError, "slot %d has no lease to release", (int)slot);
        break;
      }
      leases.at[slot]--;
      if (leases.at[slot] == 0 && ((const uint8_t *)states.buf)[slot] != settled && append_slots(last, &slot, 1) < 0) break;
    }
    if (PyErr_Occurred()) {
      while (done-- > 0) leases.at[PyLong_AsLong(PySequence_Fast_GET_ITEM(slots, done))]++;
      Py_CLEAR(last);
    }
    PyBuffer_Release(&leases.view);
  }
  PyBuffer_Release(&states);
  Py_DECREF(slots);
  return last;
}
