/* Preloaded into a process: fails chosen calls to files under one folder, and keeps what a loss of
   power would leave of them.

   shim_arm(root, first, sticky, error) makes the call number `first` (from 1) under `root` fail with
   `error`; with `sticky`, that call and every later one that needs room on the disk. With 0 none
   fails. Calls are counted in a page that is shared with forked children. With `snapshots`, each
   fsync copies the file to that folder, and what happened to names is logged there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FDS 4096
struct shared { long calls; long failed; long copies; char what[64]; };
static struct shared *page;
static char root[PATH_MAX], snapshots[PATH_MAX];
static long first;
static int sticky, error_number, journal = -1;
static unsigned char mine[FDS];

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

struct shared *shim_page(void) {
  if (!page)
    page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return page;
}

void shim_arm(const char *folder, long n, int stay, int error, const char *copies) {
  memset(shim_page(), 0, sizeof *page);
  first = n, sticky = stay, error_number = error;
  snprintf(snapshots, sizeof snapshots, "%s", copies);
  if (*copies) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/journal", copies);
    journal = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  }
  snprintf(root, sizeof root, "%s", folder);
}

static int under(const char *path) {
  size_t n = strlen(root);
  return n && path && !strncmp(path, root, n) && (path[n] == '/' || !path[n]);
}

static int ours(int fd) { return *root && fd >= 0 && fd < FDS && mine[fd]; }

/* Whether this call is to fail; `needs_room` is whether it takes space on the disk. */
static int fails(const char *what, int needs_room) {
  long n = __atomic_add_fetch(&page->calls, 1, __ATOMIC_SEQ_CST);
  if (!first || n < first || (n > first && !(sticky && needs_room)))
    return 0;
  if (n == first)
    snprintf(page->what, sizeof page->what, "%s", what);
  page->failed++;
  errno = error_number;
  return 1;
}

static void note(const char *kind, const char *a, const char *b, long inode) {
  char line[2 * PATH_MAX + 64];
  if (journal < 0) return;
  int n = snprintf(line, sizeof line, "%s\t%s\t%s\t%ld\n", kind, a, b, inode);
  if (REAL(write)(journal, line, n) < 0) return;
}

static void snapshot(int fd) {
  struct stat st;
  char from[64], to[PATH_MAX + 32], block[65536], path[PATH_MAX];
  if (journal < 0 || fstat(fd, &st)) return;
  snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(from, path, sizeof path - 1);
  if (n < 0) return;
  path[n] = 0;
  if (S_ISDIR(st.st_mode)) { note("folder", path, "", 0); return; }
  long number = __atomic_add_fetch(&page->copies, 1, __ATOMIC_SEQ_CST);
  snprintf(to, sizeof to, "%s/%ld", snapshots, number);
  int source = REAL(open)(from, O_RDONLY), target = REAL(open)(to, O_WRONLY | O_CREAT, 0666);
  while ((n = REAL(read)(source, block, sizeof block)) > 0)
    if (REAL(write)(target, block, n) != n) break;
  REAL(close)(source), REAL(close)(target);
  snprintf(to, sizeof to, "%ld", number);
  note("file", path, to, st.st_ino);
}

static int opened(int fd, const char *path, int flags, int was_there) {
  struct stat st;
  if (fd >= 0 && fd < FDS) {
    mine[fd] = 1;
    if ((flags & O_CREAT) && !was_there && !fstat(fd, &st)) note("create", path, "", st.st_ino);
  }
  return fd;
}

#define OPEN(name, declared, passed, path)                                        \
  int name declared {                                                             \
    mode_t mode = 0;                                                              \
    if (flags & (O_CREAT | O_TMPFILE)) {                                          \
      va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); \
    }                                                                             \
    if (!under(path)) { int fd = REAL(name) passed; if (fd >= 0 && fd < FDS) mine[fd] = 0; return fd; } \
    int was_there = !access(path, F_OK);                                          \
    if (fails("open", flags & O_CREAT)) return -1;                                \
    return opened(REAL(name) passed, path, flags, was_there);                     \
  }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode), path)
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), path)
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode), path)
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode), path)

int close(int fd) { if (fd >= 0 && fd < FDS) mine[fd] = 0; return REAL(close)(fd); }

#define ON_FD(type, name, declared, passed, what, room) \
  type name declared { return ours(fd) && fails(what, room) ? -1 : REAL(name) passed; }
ON_FD(ssize_t, read, (int fd, void *to, size_t n), (fd, to, n), "read", 0)
ON_FD(ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n), "write", 1)
ON_FD(ssize_t, pread64, (int fd, void *to, size_t n, off64_t at), (fd, to, n, at), "read", 0)
ON_FD(ssize_t, pwrite64, (int fd, const void *from, size_t n, off64_t at), (fd, from, n, at), "write", 1)
ON_FD(int, ftruncate64, (int fd, off64_t n), (fd, n), "truncate", 0)

/* numpy and faiss write by FILE, of a descriptor that the C library opened or copied itself. */
static int file_is_ours(FILE *file) {
  char link[64], path[PATH_MAX];
  if (!*root) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fileno(file));
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return under(path);
}
size_t fwrite(const void *from, size_t size, size_t n, FILE *file) {
  return file_is_ours(file) && fails("write", 1) ? 0 : REAL(fwrite)(from, size, n, file);
}
size_t fread(void *to, size_t size, size_t n, FILE *file) {
  return file_is_ours(file) && fails("read", 0) ? 0 : REAL(fread)(to, size, n, file);
}
FILE *fopen(const char *path, const char *mode) {
  struct stat st;
  int ours = under(path), was_there = ours && !access(path, F_OK);
  if (ours && fails("open", *mode != 'r')) return NULL;
  FILE *file = REAL(fopen)(path, mode);
  if (file && ours && *mode != 'r' && !was_there && !fstat(fileno(file), &st))
    note("create", path, "", st.st_ino);
  return file;
}

int fsync(int fd) {
  if (ours(fd) && fails("fsync", 1)) return -1;
  int done = REAL(fsync)(fd);
  if (!done && ours(fd)) snapshot(fd);
  return done;
}
int fdatasync(int fd) {
  if (ours(fd) && fails("fsync", 1)) return -1;
  int done = REAL(fdatasync)(fd);
  if (!done && ours(fd)) snapshot(fd);
  return done;
}
int rename(const char *from, const char *to) {
  if (under(to) && fails("rename", 1)) return -1;
  int done = REAL(rename)(from, to);
  if (!done && under(to)) note("rename", from, to, 0);
  return done;
}
int unlink(const char *path) {
  if (under(path) && fails("unlink", 0)) return -1;
  int done = REAL(unlink)(path);
  if (!done && under(path)) note("unlink", path, "", 0);
  return done;
}
int mkdir(const char *path, mode_t mode) {
  if (under(path) && fails("mkdir", 1)) return -1;
  int done = REAL(mkdir)(path, mode);
  if (!done && under(path)) note("mkdir", path, "", 0);
  return done;
}
