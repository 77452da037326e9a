/* Reading payloads from many places of a file in one turn of the interpreter lock (digest.c says
 * why that matters). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "tables.h"

enum { MOST_PIECES = 512 }; /* of one call of the system, which takes 1,024 on Linux */

typedef struct {
  Py_buffer view;
  int64_t offset, count;
} Piece;

/* The pieces from `first` on that lie behind each other in the file, in one call; how many they
 * were, or -1 with errno set. */
static Py_ssize_t read_run(int fd, Piece *pieces, Py_ssize_t first, Py_ssize_t last) {
  struct iovec vectors[MOST_PIECES];
  Py_ssize_t taken = 0;
  int64_t next = pieces[first].offset;
  while (first + taken < last && taken < MOST_PIECES && pieces[first + taken].offset == next) {
    Piece *piece = &pieces[first + taken];
    vectors[taken++] = (struct iovec){piece->view.buf, (size_t)piece->view.len};
    next += piece->view.len;
  }
  ssize_t left;
  do left = preadv(fd, vectors, (int)taken, (off_t)pieces[first].offset);
  while (left < 0 && errno == EINTR);
  if (left < 0) return -1;
  for (Py_ssize_t i = first; i < first + taken; i++) {
    pieces[i].count = left < pieces[i].view.len ? left : pieces[i].view.len;
    left -= pieces[i].count;
  }
  return taken;
}

static int read_all(int fd, Piece *pieces, Py_ssize_t count) {
  for (Py_ssize_t first = 0; first < count;) {
    const Py_ssize_t taken = read_run(fd, pieces, first, count);
    if (taken < 0) return 0;
    first += taken;
  }
  return 1;
}

static PyObject *counts_of(const Piece *pieces, Py_ssize_t count) {
  PyObject *list = PyList_New(count);
  for (Py_ssize_t i = 0; list && i < count; i++) {
    PyObject *number = PyLong_FromLongLong(pieces[i].count);
    if (!number) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, number);
  }
  return list;
}

/* read_payloads(fd, buffers, offsets): fills each buffer from its offset; bytes read, for each. */
PyObject *py_read_payloads(PyObject *self, PyObject *const *args, Py_ssize_t given) {
  (void)self;
  if (!takes("read_payloads", given, 3)) return NULL;
  const long fd = PyLong_AsLong(args[0]);
  if (fd == -1 && PyErr_Occurred()) return NULL;
  PyObject *list = NULL, *offsets = NULL, *buffers = PySequence_Fast(args[1], "buffers must be a sequence");
  Piece *pieces = NULL;
  Py_ssize_t held = 0;
  if (!buffers || !(offsets = PySequence_Fast(args[2], "offsets must be a sequence"))) goto end;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(buffers);
  if (PySequence_Fast_GET_SIZE(offsets) != count) {
    PyErr_SetString(PyExc_ValueError, "an offset for each buffer");
    goto end;
  }
  if (!(pieces = PyMem_Calloc(count + 1, sizeof *pieces))) {
    PyErr_NoMemory();
    goto end;
  }
  for (; held < count; held++) {
    pieces[held].offset = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(offsets, held));
    if (pieces[held].offset == -1 && PyErr_Occurred()) goto end;
    if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(buffers, held), &pieces[held].view, PyBUF_WRITABLE) < 0) goto end;
  }
  int sound, error;
  Py_BEGIN_ALLOW_THREADS;
  sound = read_all((int)fd, pieces, count);
  error = errno;
  Py_END_ALLOW_THREADS;
  errno = error;
  list = sound ? counts_of(pieces, count) : PyErr_SetFromErrno(PyExc_OSError);
end:
  while (held) PyBuffer_Release(&pieces[--held].view);
  PyMem_Free(pieces);
  Py_XDECREF(offsets);
  Py_XDECREF(buffers);
  return list;
}
