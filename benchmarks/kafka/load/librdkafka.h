/* The part of librdkafka's interface that the load generator uses, declared here
 * because the library that comes with the Python package has no headers beside it.
 *
 * Names, types and numbers are librdkafka's binary interface, which it keeps from
 * version to version. What came late is weak: with an older library the program
 * links all the same, and the mode that needs it says so. */
#ifndef HEADRACE_LIBRDKAFKA_H
#define HEADRACE_LIBRDKAFKA_H

#include <stddef.h>
#include <stdint.h>

#define LATE __attribute__((weak))

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_share_s rd_kafka_share_t;
typedef struct rd_kafka_messages_s rd_kafka_messages_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;
typedef struct rd_kafka_topic_partition_s rd_kafka_topic_partition_t;
typedef int rd_kafka_resp_err_t;

typedef struct rd_kafka_message_s {
    rd_kafka_resp_err_t err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum { RD_KAFKA_PRODUCER = 0, RD_KAFKA_CONSUMER = 1 };
enum { RD_KAFKA_CONF_OK = 0 };
enum { RD_KAFKA_MSG_F_BLOCK = 4 };
enum { RD_KAFKA_PARTITION_UA = -1 };
enum { RD_KAFKA_OFFSET_BEGINNING = -2 };

const char *rd_kafka_version_str(void);
const char *rd_kafka_err2str(rd_kafka_resp_err_t error);
rd_kafka_resp_err_t rd_kafka_last_error(void);

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *conf, const char *name, const char *value, char *reason,
                      size_t reason_size);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *conf,
                                 void (*report)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *conf, char *reason, size_t reason_size);
void rd_kafka_destroy(rd_kafka_t *client);
int rd_kafka_poll(rd_kafka_t *client, int timeout_ms);
int rd_kafka_outq_len(rd_kafka_t *client);
rd_kafka_resp_err_t rd_kafka_flush(rd_kafka_t *client, int timeout_ms);

rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *client, const char *name,
                                     rd_kafka_topic_conf_t *conf);
void rd_kafka_topic_destroy(rd_kafka_topic_t *topic);
int rd_kafka_produce(rd_kafka_topic_t *topic, int32_t partition, int flags, void *payload,
                     size_t length, const void *key, size_t key_length, void *opaque);
int rd_kafka_produce_batch(rd_kafka_topic_t *topic, int32_t partition, int flags,
                           rd_kafka_message_t *messages, int count);

rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int size);
void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *list);
rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *list,
                                                              const char *topic, int32_t partition);
rd_kafka_resp_err_t
rd_kafka_topic_partition_list_set_offset(rd_kafka_topic_partition_list_t *list, const char *topic,
                                         int32_t partition, int64_t offset);
rd_kafka_resp_err_t rd_kafka_assign(rd_kafka_t *client, const rd_kafka_topic_partition_list_t *list);
rd_kafka_resp_err_t rd_kafka_poll_set_consumer(rd_kafka_t *client);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *client);
void rd_kafka_queue_destroy(rd_kafka_queue_t *queue);
ptrdiff_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *queue, int timeout_ms,
                                       rd_kafka_message_t **messages, size_t size);
void rd_kafka_message_destroy(rd_kafka_message_t *message);
rd_kafka_resp_err_t rd_kafka_consumer_close(rd_kafka_t *client);

const char *rd_kafka_error_string(const rd_kafka_error_t *error);
void rd_kafka_error_destroy(rd_kafka_error_t *error);

/* Share consumers came with 2.15. */
LATE rd_kafka_share_t *rd_kafka_share_consumer_new(rd_kafka_conf_t *conf, char *reason,
                                                   size_t reason_size);
LATE rd_kafka_resp_err_t rd_kafka_share_subscribe(rd_kafka_share_t *consumer,
                                                  const rd_kafka_topic_partition_list_t *list);
LATE rd_kafka_error_t *rd_kafka_share_poll(rd_kafka_share_t *consumer, int timeout_ms,
                                           rd_kafka_messages_t **messages);
LATE void rd_kafka_share_destroy(rd_kafka_share_t *consumer);
LATE size_t rd_kafka_messages_count(const rd_kafka_messages_t *messages);
LATE rd_kafka_message_t *rd_kafka_messages_get(const rd_kafka_messages_t *messages, size_t index);
LATE void rd_kafka_messages_destroy(rd_kafka_messages_t *messages);

#endif
