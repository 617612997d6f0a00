/* Preloaded into a process: its wall clock is set an hour forward, an hour back and right again,
   every 0.3 s. The monotonic clock is left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long offset(void) {
  struct timespec now;
  REAL(clock_gettime)(CLOCK_MONOTONIC, &now);
  long step = (now.tv_sec * 10 + now.tv_nsec / 100000000) / 3 % 3;
  return step == 1 ? 3600 : step == 2 ? -3600 : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int done = REAL(clock_gettime)(clock, at);
  if (!done && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += offset();
  return done;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  int done = REAL(gettimeofday)(at, zone);
  if (!done) at->tv_sec += offset();
  return done;
}
time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
