/* The modes that go through librdkafka: what an application in C would see. */
#define _GNU_SOURCE
#include "load.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "librdkafka.h"

enum { CHUNK = 1000, TIMEOUT_MS = 60000 };

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char reason[256];
    if (rd_kafka_conf_set(conf, name, value, reason, sizeof reason) != RD_KAFKA_CONF_OK)
        fail("%s=%s: %s", name, value, reason);
}

static rd_kafka_conf_t *new_conf(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char address[128];
    snprintf(address, sizeof address, "%s:%d", options.host, options.port);
    set(conf, "bootstrap.servers", address);
    set(conf, "broker.address.family", "v4");
    set(conf, "socket.nagle.disable", "true");
    return conf;
}

static rd_kafka_t *new_client(int type, rd_kafka_conf_t *conf) {
    char reason[256];
    rd_kafka_t *client = rd_kafka_new(type, conf, reason, sizeof reason);
    if (!client) fail("%s", reason);
    return client;
}

/* Called for messages that failed, and in the latency mode for all. */
static _Atomic int64_t reported;
static bool is_timed;

static void on_report(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) fail("a message was not taken: %s", rd_kafka_err2str(message->err));
    if (is_timed && message->_private) {
        int64_t index = (int64_t)(intptr_t)message->_private - 1;
        result.latencies_ns[index] = now_ns() - result.latencies_ns[index];
    }
    atomic_fetch_add(&reported, 1);
}

static rd_kafka_t *new_producer(const char *only_errors) {
    char text[32];
    rd_kafka_conf_t *conf = new_conf();
    snprintf(text, sizeof text, "%d", options.acks);
    set(conf, "acks", text);
    snprintf(text, sizeof text, "%g", options.linger_ms);
    set(conf, "linger.ms", text);
    set(conf, "compression.type", options.codec);
    set(conf, "batch.size", "1000000");
    snprintf(text, sizeof text, "%d", options.records ? options.records : 100000);
    set(conf, "batch.num.messages", text);
    set(conf, "queue.buffering.max.messages", "2000000");
    set(conf, "queue.buffering.max.kbytes", "400000");
    set(conf, "delivery.report.only.error", only_errors);
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    return new_client(RD_KAFKA_PRODUCER, conf);
}

/* One message to every partition: leaders are known and connections are open
 * before the clock starts. */
static void warm_up(rd_kafka_t *client, rd_kafka_topic_t *topic) {
    for (int partition = 0; partition < options.partitions; partition++)
        if (rd_kafka_produce(topic, partition, 0, value_of(0), options.size, NULL, 0, NULL))
            fail("%s", rd_kafka_err2str(rd_kafka_last_error()));
    if (rd_kafka_flush(client, TIMEOUT_MS)) fail("the broker did not take the first messages");
}

void produce(void) {
    rd_kafka_t *client = new_producer("true");
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options.topic, NULL);
    rd_kafka_message_t *messages = calloc(CHUNK, sizeof *messages);
    int64_t *keys = calloc(CHUNK, sizeof *keys);
    warm_up(client, topic);
    measure_begin();
    int partition = 0;
    for (int64_t sent = 0; sent < options.messages;) {
        int count = options.messages - sent < CHUNK ? (int)(options.messages - sent) : CHUNK;
        for (int i = 0; i < count; i++) {
            messages[i].payload = value_of(sent + i);
            messages[i].len = options.size;
            messages[i].err = 0;
            if (options.keys) {
                keys[i] = (sent + i) % options.keys;
                messages[i].key = &keys[i];
                messages[i].key_len = sizeof keys[i];
            }
        }
        int taken = rd_kafka_produce_batch(topic, partition, RD_KAFKA_MSG_F_BLOCK, messages, count);
        if (taken != count) fail("the queue took %d of %d", taken, count);
        partition = (partition + 1) % options.partitions;
        sent += count;
        rd_kafka_poll(client, 0);
    }
    if (rd_kafka_flush(client, TIMEOUT_MS)) fail("messages were left over");
    measure_end();
    result.messages = options.messages;
    result.bytes = options.messages * options.size;
}

void consume(void) {
    rd_kafka_conf_t *conf = new_conf();
    set(conf, "group.id", options.group);
    set(conf, "enable.auto.commit", "false");
    set(conf, "enable.auto.offset.store", "false");
    set(conf, "queued.min.messages", "1000000");
    set(conf, "fetch.message.max.bytes", "4194304");
    set(conf, "fetch.wait.max.ms", "100");
    rd_kafka_t *client = new_client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_poll_set_consumer(client);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(options.partitions);
    for (int partition = 0; partition < options.partitions; partition++) {
        rd_kafka_topic_partition_list_add(list, options.topic, partition);
        rd_kafka_topic_partition_list_set_offset(list, options.topic, partition,
                                                 RD_KAFKA_OFFSET_BEGINNING);
    }
    rd_kafka_message_t **messages = calloc(CHUNK * 10, sizeof *messages);
    int64_t deadline_ns = now_ns() + TIMEOUT_MS * 1000000LL;
    if (rd_kafka_assign(client, list)) fail("the partitions were refused");
    bool has_begun = false;
    while (result.messages < options.messages) {
        /* Finding leaders and offsets is not consuming: the clock starts with the
         * first message, which is not counted. */
        int64_t missing = options.messages - result.messages;
        size_t wanted = !has_begun ? 1 : missing < CHUNK * 10 ? (size_t)missing : CHUNK * 10;
        ptrdiff_t count = rd_kafka_consume_batch_queue(queue, 100, messages, wanted);
        for (ptrdiff_t i = 0; i < count; i++) {
            if (messages[i]->err) fail("%s", rd_kafka_err2str(messages[i]->err));
            if (has_begun) result.bytes += (int64_t)messages[i]->len;
            rd_kafka_message_destroy(messages[i]);
        }
        if (count > 0 && has_begun) result.messages += count;
        if (count > 0 && !has_begun) {
            has_begun = true;
            options.messages -= count;
            measure_begin();
        }
        if (now_ns() > deadline_ns) fail("only %lld came", (long long)result.messages);
    }
    measure_end();
}

/* Reports are taken in a thread of their own, so that pacing does not delay them. */
static void *take_reports(void *client) {
    while (atomic_load(&reported) < options.messages) rd_kafka_poll(client, 100);
    return NULL;
}

static void wait_until(int64_t at_ns) {
    struct timespec at = {at_ns / 1000000000LL, at_ns % 1000000000LL};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL)) continue;
}

static int by_size(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

void latency(void) {
    options.messages = (int64_t)(options.rate * options.seconds);
    options.linger_ms = 0;
    result.latencies_ns = calloc((size_t)options.messages, sizeof(int64_t));
    rd_kafka_t *client = new_producer("false");
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options.topic, NULL);
    warm_up(client, topic);
    atomic_store(&reported, 0);
    is_timed = true;
    pthread_t reports;
    if (pthread_create(&reports, NULL, take_reports, client)) fail("no thread for reports");
    measure_begin();
    int64_t first_ns = now_ns() + 1000000;
    for (int64_t number = 0; number < options.messages; number++) {
        /* From the moment at which it was due: a sender that is held up does not
         * make the messages behind it look fast. */
        int64_t due_ns = first_ns + (int64_t)((double)number * 1e9 / options.rate);
        if (due_ns > now_ns()) wait_until(due_ns);
        result.latencies_ns[number] = due_ns;
        if (rd_kafka_produce(topic, (int)(number % options.partitions), RD_KAFKA_MSG_F_BLOCK,
                             value_of(number), options.size, NULL, 0,
                             (void *)(intptr_t)(number + 1)))
            fail("%s", rd_kafka_err2str(rd_kafka_last_error()));
    }
    pthread_join(reports, NULL);
    measure_end();
    result.messages = result.latencies = options.messages;
    result.bytes = options.messages * options.size;
    qsort(result.latencies_ns, (size_t)options.messages, sizeof(int64_t), by_size);
}

void share_consume(void) {
    if (!rd_kafka_share_consumer_new) fail("this librdkafka has no share consumers");
    rd_kafka_conf_t *conf = new_conf();
    char reason[256];
    set(conf, "group.id", options.group);
    rd_kafka_share_t *consumer = rd_kafka_share_consumer_new(conf, reason, sizeof reason);
    if (!consumer) fail("%s", reason);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, options.topic, RD_KAFKA_PARTITION_UA);
    if (rd_kafka_share_subscribe(consumer, list)) fail("the subscription was refused");
    int64_t deadline_ns = now_ns() + TIMEOUT_MS * 1000000LL;
    bool has_begun = false;
    /* What one poll brought is accepted by the next. */
    while (result.messages < options.messages) {
        rd_kafka_messages_t *messages = NULL;
        rd_kafka_error_t *error = rd_kafka_share_poll(consumer, 1000, &messages);
        if (error) fail("%s", rd_kafka_error_string(error));
        size_t count = messages ? rd_kafka_messages_count(messages) : 0;
        for (size_t i = 0; i < count && has_begun; i++) {
            rd_kafka_message_t *message = rd_kafka_messages_get(messages, i);
            if (message->err) fail("%s", rd_kafka_err2str(message->err));
            result.bytes += (int64_t)message->len;
            result.messages++;
        }
        /* The clock starts when the group has been joined: with the first messages. */
        if (count && !has_begun) {
            has_begun = true;
            options.messages -= (int64_t)count;
            measure_begin();
        }
        if (messages) rd_kafka_messages_destroy(messages);
        if (now_ns() > deadline_ns) fail("only %lld came", (long long)result.messages);
    }
    measure_end();
}
