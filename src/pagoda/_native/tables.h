/* What the tables of core.state share: arguments from Python, and lists of slots for it. */
#ifndef PAGODA_TABLES_H
#define PAGODA_TABLES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

enum { KEY_BYTES = 32 };

extern PyType_Spec key_index_spec, recency_spec;
PyObject *py_release(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *py_read_payloads(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *py_digests(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* A writable array of int32 that Python lent; release `view` when done. */
typedef struct {
  Py_buffer view;
  int32_t *at;
  int64_t count;
} Array;

static inline int takes(const char *method, Py_ssize_t given, Py_ssize_t wanted) {
  if (given == wanted) return 1;
  PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", method, wanted, given);
  return 0;
}

static inline int int32_array(PyObject *object, int64_t wanted, Array *array) {
  if (PyObject_GetBuffer(object, &array->view, PyBUF_WRITABLE | PyBUF_FORMAT) < 0) return 0;
  const char *format = array->view.format ? array->view.format : "B";
  if (array->view.itemsize == 4 && (*format == 'i' || *format == 'l') && array->view.len == wanted * 4) {
    array->at = array->view.buf;
    array->count = wanted;
    return 1;
  }
  PyBuffer_Release(&array->view);
  PyErr_Format(PyExc_ValueError, "not an array of %lld int32", (long long)wanted);
  return 0;
}

/* The state of every slot, and the one that is asked for; release `view` when done. */
typedef struct {
  Py_buffer view;
  const uint8_t *at;
  long wanted;
} Bytes;

static inline int bytes_array(PyObject *object, PyObject *wanted, int64_t slots, Bytes *bytes) {
  bytes->wanted = PyLong_AsLong(wanted);
  if (bytes->wanted == -1 && PyErr_Occurred()) return 0;
  if (PyObject_GetBuffer(object, &bytes->view, PyBUF_SIMPLE) < 0) return 0;
  bytes->at = bytes->view.buf;
  if (bytes->view.len == slots) return 1;
  PyBuffer_Release(&bytes->view);
  PyErr_Format(PyExc_ValueError, "not an array of %lld bytes", (long long)slots);
  return 0;
}

static inline int slot_argument(PyObject *object, int64_t slots, int32_t *slot) {
  long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) return 0;
  if (value < 0 || value >= slots) {
    PyErr_Format(PyExc_IndexError, "slot %lld of %lld", value, (long long)slots);
    return 0;
  }
  *slot = (int32_t)value;
  return 1;
}

static inline int append_slots(PyObject *list, const int32_t *slots, int count) {
  for (int i = 0; i < count; i++) {
    PyObject *number = PyLong_FromLong(slots[i]);
    if (!number || PyList_Append(list, number) < 0) {
      Py_XDECREF(number);
      return -1;
    }
    Py_DECREF(number);
  }
  return 0;
}

#endif
