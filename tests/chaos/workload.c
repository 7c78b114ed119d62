/* The work of a chaos run: says in its node's journal that it lives, and holds a lock.

   job SECONDS CODE KIND, with KIND one of
     plain     ends by itself, or 200 ms after SIGTERM
     stubborn  ignores SIGTERM
     leaver    leaves a child in a session of its own behind
     waiter    ends before its time when there is a file named after its task, next to its lock

   A line: event, boot clock in ns, task, generation, rank, pid, word; with a start the devices
   that it was given follow the word. The lock is one file per
   member for all nodes together, so a second living copy is seen by the kernel, even if the first
   one is stopped. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int journal = -1;
static const char *task, *generation, *rank;
static volatile sig_atomic_t asked;
static char signal_path[4096];

static long long now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_BOOTTIME, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void note(const char *event, const char *word)
{
    char line[512];
    int size = snprintf(line, sizeof line, "%s %lld %s %s %s %d %s\n", event, now(), task,
                        generation, rank, (int)getpid(), word);
    if (size > 0 && write(journal, line, size) != size)
        _exit(99);
}

static const char *given(const char *name, const char *fallback)
{
    const char *value = getenv(name);
    return value && *value ? value : fallback;
}

static void on_term(int number)
{
    (void)number;
    asked = 1;
}

static void live(long long until, int is_stubborn)
{
    long long next = 0;
    struct timespec step = {0, 50 * 1000 * 1000};
    while (now() < until && !(signal_path[0] && access(signal_path, F_OK) == 0)) {
        if (now() >= next) {
            note("beat", "-");
            next = now() + 500 * 1000000LL;
        }
        nanosleep(&step, NULL);
        if (asked && !is_stubborn) {
            struct timespec rest = {0, 200 * 1000 * 1000};
            note("term", "-");
            nanosleep(&rest, NULL);
            note("end", "143");
            _exit(143);
        }
    }
}

static int open_in(const char *folder, const char *name, int flags)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int descriptor = open(path, flags, 0666);
    if (descriptor < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        _exit(98);
    }
    return descriptor;
}

int main(int count, char **words)
{
    char name[256];
    if (count != 4)
        return 97;
    task = given("RPM_TASK_ID", "-");
    generation = given("RPM_ATTEMPT", "0");
    rank = given("RPM_RANK", "0");
    umask(0);
    journal = open_in(given("CHAOS_HERE", "."), "journal", O_WRONLY | O_APPEND | O_CREAT);
    snprintf(name, sizeof name, "%s-%s", task, rank);
    int lock = open_in(given("CHAOS_LOCKS", "."), name, O_RDWR | O_CREAT);
    int is_alone = flock(lock, LOCK_EX | LOCK_NB) == 0;
    char word[256];
    snprintf(word, sizeof word, "%s=%s", is_alone ? "alone" : "overlap", given("RPM_DEVICES", ""));
    note("start", word);
    signal(SIGTERM, on_term);
    printf("ready\n");
    fflush(stdout);
    if (strcmp(words[3], "waiter") == 0)
        snprintf(signal_path, sizeof signal_path, "%s/%s.end", given("CHAOS_LOCKS", "."), task);
    long long until = now() + (long long)(atof(words[1]) * 1e9);
    if (strcmp(words[3], "leaver") == 0 && fork() == 0) {
        setsid();
        live(until + 3600 * 1000000000LL, 1);
        _exit(0);
    }
    live(until, strcmp(words[3], "stubborn") == 0);
    note("end", words[2]);
    return atoi(words[2]);
}
