/* Options in, one measurement, JSON out. */
#define _GNU_SOURCE
#include "load.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "librdkafka.h"

enum { THREADS_MAX = 256, NAME_MAX_BYTES = 32 };

typedef struct {
    int id;
    int64_t cpu_ns;
    char name[NAME_MAX_BYTES];
} Thread;

typedef struct {
    int64_t at_ns;
    int64_t cpu_ns;
    int64_t broker_cpu_ns;
    int threads;
    Thread thread[THREADS_MAX];
} Moment;

Options options = {
    .mode = "produce",
    .host = "127.0.0.1",
    .port = 9092,
    .topic = "load",
    .group = "load",
    .codec = "none",
    .topic_id = "",
    .partitions = 1,
    .messages = 100000,
    .size = 100,
    .acks = -1,
    .linger_ms = 5,
    .rate = 1000,
    .seconds = 5,
    .connections = 1,
    .depth = 64,
};
Result result;

static Moment begun, ended;
static char *values;

_Noreturn void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec time;
    if (clock_gettime(clock, &time)) return -1;
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* Linux has a clock for the processor time of every process, which is finer than
 * the ticks in /proc and keeps what threads used that have ended. */
static int64_t broker_cpu_ns(void) {
    clockid_t clock;
    if (!options.broker_pid) return 0;
    if (clock_getcpuclockid(options.broker_pid, &clock)) fail("no broker has this process id");
    return clock_ns(clock);
}

static int64_t thread_cpu_ns(const char *id) {
    char path[300], text[64];
    long long on_cpu = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", id);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fgets(text, sizeof text, file)) on_cpu = atoll(text);
        fclose(file);
    }
    return on_cpu;
}

static void note_threads(Moment *moment) {
    DIR *folder = opendir("/proc/self/task");
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder)) && moment->threads < THREADS_MAX;) {
        if (entry->d_name[0] == '.') continue;
        Thread *thread = &moment->thread[moment->threads++];
        thread->id = atoi(entry->d_name);
        thread->cpu_ns = thread_cpu_ns(entry->d_name);
        char path[300];
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fgets(thread->name, sizeof thread->name, file)) thread->name[strcspn(thread->name, "\n\"\\")] = 0;
        fclose(file);
    }
    closedir(folder);
}

void measure_begin(void) {
    note_threads(&begun);
    begun.broker_cpu_ns = broker_cpu_ns();
    begun.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    begun.at_ns = now_ns();
}

void measure_end(void) {
    ended.at_ns = now_ns();
    ended.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    ended.broker_cpu_ns = broker_cpu_ns();
    note_threads(&ended);
}

static Thread busiest_thread(void) {
    Thread busiest = {.name = "none"};
    for (int i = 0; i < ended.threads; i++) {
        Thread used = ended.thread[i];
        for (int j = 0; j < begun.threads; j++)
            if (begun.thread[j].id == used.id) used.cpu_ns -= begun.thread[j].cpu_ns;
        if (used.cpu_ns > busiest.cpu_ns) busiest = used;
    }
    return busiest;
}

void make_values(int size) {
    static const char *words[] = {"paid", "shipped", "returned", "opened", "waiting", "north", "south"};
    uint64_t chance = 88172645463325252ULL;
    values = malloc((size_t)VALUES * size);
    if (!values) fail("no memory for the values");
    for (int64_t number = 0; number < VALUES; number++) {
        char *value = values + number * size;
        for (int at = 0; at < size;) {
            char text[96];
            chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
            int length = snprintf(text, sizeof text, "{\"order\":%llu,\"state\":\"%s\",\"cents\":%llu}",
                                  (unsigned long long)(chance >> 24), words[chance % 7],
                                  (unsigned long long)(chance & 0xfffff));
            if (length > size - at) length = size - at;
            memcpy(value + at, text, length);
            at += length;
        }
    }
}

char *value_of(int64_t number) { return values + (number % VALUES) * options.size; }

static double percentile_ms(double fraction) {
    int64_t index = (int64_t)(fraction * (double)(result.latencies - 1) + 0.5);
    return (double)result.latencies_ns[index] / 1e6;
}

static void print_result(void) {
    Thread busiest = busiest_thread();
    printf("{\"mode\": \"%s\", \"messages\": %lld, \"bytes\": %lld, \"seconds\": %.6f, ", options.mode,
           (long long)result.messages, (long long)result.bytes,
           (double)(ended.at_ns - begun.at_ns) / 1e9);
    printf("\"cpu_seconds\": %.6f, \"busiest_thread_seconds\": %.6f, \"busiest_thread\": \"%s\", ",
           (double)(ended.cpu_ns - begun.cpu_ns) / 1e9, (double)busiest.cpu_ns / 1e9, busiest.name);
    printf("\"broker_cpu_seconds\": %.6f, \"client\": \"%s\"",
           (double)(ended.broker_cpu_ns - begun.broker_cpu_ns) / 1e9,
           strncmp(options.mode, "raw", 3) ? rd_kafka_version_str() : "sockets");
    if (result.latencies)
        printf(", \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, \"max_ms\": %.4f",
               percentile_ms(0.5), percentile_ms(0.99), percentile_ms(0.999), percentile_ms(1));
    puts("}");
}

typedef struct {
    const char *name;
    enum { TEXT, INTEGER, LONG, REAL } kind;
    void *place;
} Option;

static const Option known[] = {
    {"host", TEXT, &options.host},           {"port", INTEGER, &options.port},
    {"topic", TEXT, &options.topic},         {"group", TEXT, &options.group},
    {"codec", TEXT, &options.codec},         {"topic-id", TEXT, &options.topic_id},
    {"broker-pid", INTEGER, &options.broker_pid}, {"partitions", INTEGER, &options.partitions},
    {"messages", LONG, &options.messages},   {"size", INTEGER, &options.size},
    {"acks", INTEGER, &options.acks},        {"linger-ms", REAL, &options.linger_ms},
    {"rate", REAL, &options.rate},           {"seconds", REAL, &options.seconds},
    {"connections", INTEGER, &options.connections}, {"depth", INTEGER, &options.depth},
    {"records", INTEGER, &options.records},  {"keys", LONG, &options.keys},
};

static void read_option(const char *name, char *value) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name)) continue;
        switch (known[i].kind) {
        case TEXT: *(char **)known[i].place = value; return;
        case INTEGER: *(int *)known[i].place = atoi(value); return;
        case LONG: *(int64_t *)known[i].place = atoll(value); return;
        case REAL: *(double *)known[i].place = atof(value); return;
        }
    }
    fail("there is no option --%s", name);
}

typedef struct {
    const char *name;
    void (*run)(void);
} Mode;

static const Mode modes[] = {
    {"produce", produce},         {"consume", consume},
    {"latency", latency},         {"share", share_consume},
    {"raw-produce", raw_produce}, {"raw-fetch", raw_fetch},
    {"raw-share", raw_share},
};

int main(int count, char **arguments) {
    if (count < 2) fail("usage: load MODE [--name value]...");
    options.mode = arguments[1];
    for (int i = 2; i < count; i += 2) {
        if (strncmp(arguments[i], "--", 2) || i + 1 == count) fail("%s needs a value", arguments[i]);
        read_option(arguments[i] + 2, arguments[i + 1]);
    }
    /* A paced sender that wakes 50 us late would report that as latency. */
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(options.mode, modes[i].name)) continue;
        make_values(options.size);
        modes[i].run();
        print_result();
        fflush(stdout);
        /* What is left is torn down by the kernel, faster than by the library. */
        _exit(0);
    }
    fail("there is no mode %s", options.mode);
}
