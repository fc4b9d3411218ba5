/*
 * Moves what a process takes for the time of day, by as many seconds as stand in the first eight bytes of
 * the file that WALL_CLOCK_FILE names. Preloaded by tests; the file may change at any moment.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Absolute times beyond this are times of day; the monotonic clock starts with the machine. */
#define TIME_OF_DAY 1000000000

static volatile const long long *step;

__attribute__((constructor)) static void open_step(void)
{
    const char *path = getenv("WALL_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *map = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED)
        step = map;
}

static long long seconds(void)
{
    return step ? *step : 0;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += seconds();
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where)
        *where = now.tv_sec;
    return now.tv_sec;
}

/* The kernel's clock was not stepped: who waits until a time of day must wait by the kernel's. */
static const struct timespec *as_the_kernel(const struct timespec *until, struct timespec *moved)
{
    if (!until || until->tv_sec < TIME_OF_DAY)
        return until;
    *moved = *until;
    moved->tv_sec -= seconds();
    return moved;
}

typedef int wait_until(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    static wait_until *real;
    if (!real) {
        /* Without a version it may be the one for programs that are older than it. */
        real = (wait_until *)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
        if (!real)
            real = (wait_until *)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    }
    struct timespec moved;
    return real(condition, mutex, as_the_kernel(until, &moved));
}

typedef int wait_until_by(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           clockid_t clock, const struct timespec *restrict until)
{
    static wait_until_by *real;
    if (!real)
        real = (wait_until_by *)dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    struct timespec moved;
    return real(condition, mutex, clock, as_the_kernel(until, &moved));
}
