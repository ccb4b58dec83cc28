/* Raw modes: one thread keeps many connections busy with requests of ours.
 *
 * Requests are made before the clock starts and sent as they are, so nearly all of
 * the work is the broker's. Of an answer the beginning is kept and looked at, the rest
 * is read and dropped. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frames.h"
#include "load.h"
#include "raw.h"

enum { LOOKED_AT_BYTES = 512, READ_BYTES = 1 << 20, BLOCK_BYTES = 1 << 18, STUCK_MS = 30000 };

typedef struct {
    int socket;
    int partition;
    /* What is being sent, and the memory for requests that differ from each other. */
    const uint8_t *sending;
    size_t left;
    Buffer own;
    int under_way;
    int64_t next_offset;
    int next_frame;
    /* The answer that is being read: its size, what was kept, what is still to come. */
    uint8_t kept[4 + LOOKED_AT_BYTES];
    size_t kept_length;
    size_t answer_left;
    int64_t answers;
} Connection;

typedef struct {
    /* How many requests were put up for sending, at most as many as allowed. */
    int (*fill)(Connection *connection, int allowed);
    void (*check)(Connection *connection, Reader *answer);
} Work;

static Connection *connections;
static int64_t unsent, unanswered;
static Buffer block;
static size_t frame_bytes;
static int block_frames, records;

int connect_to_broker(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    if (inet_pton(AF_INET, options.host, &address.sin_addr) != 1) fail("%s is no address", options.host);
    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    if (descriptor < 0 || connect(descriptor, (struct sockaddr *)&address, sizeof address))
        fail("cannot connect to %s:%d: %s", options.host, options.port, strerror(errno));
    int yes = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return descriptor;
}

static void on_answer(Connection *connection, const Work *work) {
    Reader answer = {connection->kept + 4, connection->kept_length - 4, 0};
    if (take(&answer, 4) != 7) fail("an answer to something else");
    skip_tags(&answer);
    work->check(connection, &answer);
}

/* Take in what came: answers follow each other, and any of them may be cut anywhere. */
static void on_bytes(Connection *connection, const Work *work, const uint8_t *data, size_t length) {
    while (length) {
        size_t wanted = 4;
        if (connection->kept_length >= 4) {
            wanted = connection->answer_left + connection->kept_length;
            if (wanted > sizeof connection->kept) wanted = sizeof connection->kept;
        }
        size_t part = wanted - connection->kept_length;
        if (part) {
            if (part > length) part = length;
            memcpy(connection->kept + connection->kept_length, data, part);
            connection->kept_length += part;
            if (connection->kept_length > 4) connection->answer_left -= part;
            data += part, length -= part;
            if (connection->kept_length == 4) {
                Reader size = {connection->kept, 4, 0};
                connection->answer_left = (size_t)take(&size, 4);
                continue;
            }
            if (connection->kept_length < wanted) return;
            on_answer(connection, work);
        } else {
            part = connection->answer_left < length ? connection->answer_left : length;
            connection->answer_left -= part;
            data += part, length -= part;
        }
        if (!connection->answer_left) {
            connection->kept_length = 0;
            connection->under_way--, connection->answers++;
            unanswered--;
        }
    }
}

static void read_answers(Connection *connection, const Work *work) {
    static uint8_t data[READ_BYTES];
    ssize_t length = recv(connection->socket, data, sizeof data, 0);
    if (length == 0) fail("the broker hung up");
    if (length > 0) on_bytes(connection, work, data, (size_t)length);
    else if (errno != EAGAIN && errno != EINTR) fail("%s", strerror(errno));
}

static void send_requests(Connection *connection, const Work *work) {
    if (!connection->left) {
        int allowed = options.depth - connection->under_way;
        if (allowed > unsent) allowed = (int)unsent;
        /* Half a window at a time, or each answer would be followed by one small write. */
        if (allowed <= 0 || (allowed < options.depth / 2 && allowed < unsent)) return;
        int count = work->fill(connection, allowed);
        connection->under_way += count;
        unsent -= count;
    }
    ssize_t length = send(connection->socket, connection->sending, connection->left, MSG_NOSIGNAL);
    if (length > 0) connection->sending += length, connection->left -= (size_t)length;
    else if (errno != EAGAIN && errno != EINTR) fail("%s", strerror(errno));
}

static void exchange(const Work *work, int64_t requests) {
    connections = calloc((size_t)options.connections, sizeof *connections);
    struct pollfd *polled = calloc((size_t)options.connections, sizeof *polled);
    for (int i = 0; i < options.connections; i++) {
        connections[i].socket = polled[i].fd = connect_to_broker();
        connections[i].partition = i % options.partitions;
        fcntl(connections[i].socket, F_SETFL, O_NONBLOCK);
    }
    unsent = unanswered = requests;
    measure_begin();
    while (unanswered) {
        for (int i = 0; i < options.connections; i++) {
            if (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) read_answers(&connections[i], work);
            send_requests(&connections[i], work);
            polled[i].events = (short)(POLLIN | (connections[i].left ? POLLOUT : 0));
        }
        if (unanswered && poll(polled, (nfds_t)options.connections, STUCK_MS) == 0)
            fail("the broker owes %lld answers", (long long)unanswered);
    }
    measure_end();
}

static int fill_produce(Connection *connection, int allowed) {
    int first = connection->next_frame % block_frames;
    int count = block_frames - first < allowed ? block_frames - first : allowed;
    connection->sending = block.data + (size_t)first * frame_bytes;
    connection->left = (size_t)count * frame_bytes;
    connection->next_frame = first + count;
    return count;
}

static void check_produce(Connection *connection, Reader *answer) {
    (void)connection;
    take_length(answer);
    skip_text(answer);
    take_length(answer);
    take(answer, 4);
    int error = (int)take(answer, 2);
    if (error) fail("a request was answered with error %d", error);
}

void raw_produce(void) {
    records = options.records ? options.records : 1;
    Buffer batch = {0};
    /* Partitions take turns. No two requests are alike, but all have one length. */
    do {
        for (int partition = 0; partition < options.partitions; partition++) {
            batch.length = 0;
            put_batch(&batch, block_frames, records, options.size);
            put_produce(&block, partition, &batch);
            block_frames++;
        }
        frame_bytes = block.length / (size_t)block_frames;
    } while (block.length < BLOCK_BYTES);
    int64_t requests = options.messages / records;
    exchange(&(Work){fill_produce, check_produce}, requests);
    result.messages = requests * records;
    result.bytes = requests * (int64_t)batch.length;
}

/* Batches have `records` each, so the offset of any of them is known. */
static int fill_fetch(Connection *connection, int allowed) {
    connection->own.length = 0;
    for (int i = 0; i < allowed; i++) {
        put_fetch(&connection->own, connection->partition, connection->next_offset, 1);
        connection->next_offset += records;
        if (connection->next_offset >= options.messages) connection->next_offset = 0;
    }
    connection->sending = connection->own.data;
    connection->left = connection->own.length;
    return allowed;
}

static void check_fetch(Connection *connection, Reader *answer) {
    take(answer, 4);
    if (take(answer, 2)) fail("a fetch was refused");
    take(answer, 4);
    take_length(answer);
    skip_text(answer);
    take_length(answer);
    take(answer, 4);
    int error = (int)take(answer, 2);
    if (error) fail("a fetch was answered with error %d", error);
    skip(answer, 24);
    for (uint64_t aborted = take_length(answer); aborted; aborted--) fail("an aborted transaction");
    take(answer, 4);
    int64_t length = (int64_t)take_length(answer);
    int64_t batches = options.messages / records;
    int64_t expected = connection->answers % batches * records;
    int64_t offset = length ? take(answer, 8) : -1;
    if (offset != expected)
        fail("offset %lld was fetched, %lld was asked for", (long long)offset, (long long)expected);
    result.bytes += length;
    result.messages += records;
}

/* Every connection reads its partition from the beginning, `messages` at a time, for
 * `rate` requests in all. */
void raw_fetch(void) {
    records = options.records ? options.records : 1;
    exchange(&(Work){fill_fetch, check_fetch}, (int64_t)options.rate);
}
