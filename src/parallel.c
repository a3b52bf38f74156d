/* SPDX-License-Identifier: MIT */
#include "parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MOST_THREADS = 63 };

struct job {
    size_t n;
    atomic_size_t next;
    void (*piece)(void *user, size_t i);
    void *user;
};

static void *work(void *arg)
{
    struct job *job = arg;
    for (size_t i; (i = atomic_fetch_add(&job->next, 1)) < job->n;)
        job->piece(job->user, i);
    return NULL;
}

void wd_parallel(size_t n, void (*piece)(void *user, size_t i), void *user)
{
    struct job job = {.n = n, .piece = piece, .user = user};
    pthread_t thread[MOST_THREADS];
    const long processors = n > 1 ? sysconf(_SC_NPROCESSORS_ONLN) : 1;
    size_t threads = 0;
    while (threads < MOST_THREADS && threads + 1 < n && (long)threads + 1 < processors &&
           pthread_create(&thread[threads], NULL, work, &job) == 0)
        threads++;
    work(&job);
    while (threads > 0)
        pthread_join(thread[--threads], NULL);
}
