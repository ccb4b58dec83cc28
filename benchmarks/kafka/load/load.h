/* A load generator for brokers that speak Kafka: what its parts share.
 *
 *     main.c      options, the measurement around a mode, the answer as JSON
 *     client.c    modes that go through librdkafka, as applications do
 *     frames.c    the requests of the raw modes, and what is read from the answers
 *     raw.c       raw modes: requests of ours on plain sockets, so that the broker's
 *                 work is seen without a client's
 *     share.c     a share group on plain sockets
 *
 * Every mode does its preparation first, calls `measure_begin`, does exactly the
 * work that is measured, and calls `measure_end`. Nothing is asserted about speed;
 * an answer that is not what was asked for ends the program. */
#ifndef HEADRACE_LOAD_H
#define HEADRACE_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *mode;
    const char *host;
    int port;
    const char *topic;
    const char *group;
    const char *codec;
    /* Of the topic, 32 hexadecimal digits: share requests name it so. */
    const char *topic_id;
    /* The broker's process, whose processor time is read around the work. */
    int broker_pid;
    int partitions;
    int64_t messages;
    int size;
    /* How many different keys messages have; 0 for none. */
    int64_t keys;
    int acks;
    double linger_ms;
    double rate;
    double seconds;
    int connections;
    /* Requests that a raw connection has under way at once. */
    int depth;
    /* Records in each batch; 0 leaves it to the client, and is 1 in raw modes. */
    int records;
} Options;

typedef struct {
    int64_t messages;
    int64_t bytes;
    /* Of the latency mode; sorted when the work is done. */
    int64_t *latencies_ns;
    int64_t latencies;
} Result;

extern Options options;
extern Result result;

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int64_t now_ns(void);
void measure_begin(void);
void measure_end(void);

/* Values as applications send them: text in which lz4 finds something to shorten. */
enum { VALUES = 4096 };
char *value_of(int64_t number);
void make_values(int size);

void produce(void);
void consume(void);
void latency(void);
void share_consume(void);
void raw_produce(void);
void raw_fetch(void);
void raw_share(void);

#endif
