/* A share group on plain sockets: each member fetches, and acknowledges with its next
 * fetch what the last one brought, as clients do by default.
 *
 * A member is a thread with a connection of its own and one request under way. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frames.h"
#include "load.h"
#include "raw.h"

enum { RANGES_MAX = 4096, ACCEPT = 1, HEARTBEAT_NS = 2000000000 };
enum { SESSION_NOT_FOUND = 122, STUCK_SECONDS = 60 };

typedef struct {
    int32_t partition;
    int64_t first, last;
} Range;

typedef struct {
    int socket;
    char id[48];
    int member_epoch, session_epoch;
    Range ranges[RANGES_MAX];
    int range_count;
    Buffer request, answer;
    int64_t heartbeat_ns;
} Member;

static uint8_t topic_id[16];
static _Atomic int64_t acknowledged, received_bytes;
static _Atomic int last_error;
static pthread_barrier_t joined;

static void receive(Member *member, uint8_t *place, size_t length) {
    while (length) {
        ssize_t part = recv(member->socket, place, length, 0);
        if (part <= 0) fail("the broker hung up on a member");
        place += part, length -= (size_t)part;
    }
}

static Reader call(Member *member) {
    Buffer *request = &member->request;
    for (size_t sent = 0; sent < request->length;) {
        ssize_t part = send(member->socket, request->data + sent, request->length - sent, MSG_NOSIGNAL);
        if (part <= 0) fail("the broker hung up on a member");
        sent += (size_t)part;
    }
    uint8_t head[4];
    receive(member, head, 4);
    Reader size = {head, 4, 0};
    size_t length = (size_t)take(&size, 4);
    if (length > member->answer.size) {
        member->answer.data = realloc(member->answer.data, length);
        member->answer.size = length;
        if (!member->answer.data) fail("no memory for an answer");
    }
    receive(member, member->answer.data, length);
    Reader answer = {member->answer.data, length, 0};
    if (take(&answer, 4) != 7) fail("an answer to something else");
    skip_tags(&answer);
    return answer;
}

/* Kafka makes what it keeps groups in when somebody first asks where a group lives. */
static void find_coordinator(Member *member) {
    Buffer *request = &member->request;
    request->length = 0;
    size_t start = begin_frame(request, FIND_COORDINATOR, 4);
    put_8(request, 0);
    put_length(request, 1);
    put_text(request, options.group);
    put_8(request, 0);
    end_frame(request, start);
    call(member);
}

static void heartbeat(Member *member) {
    Buffer *request = &member->request;
    request->length = 0;
    size_t start = begin_frame(request, SHARE_HEARTBEAT, 1);
    put_text(request, options.group);
    put_text(request, member->id);
    put_32(request, member->member_epoch);
    put_8(request, 0);
    if (member->member_epoch) {
        put_8(request, 0);
    } else {
        put_length(request, 1);
        put_text(request, options.topic);
    }
    put_8(request, 0);
    end_frame(request, start);
    Reader answer = call(member);
    take(&answer, 4);
    int error = (int)take(&answer, 2);
    /* Until the coordinator is there: 14, 15 and 16 say that it is not yet. */
    if (error >= 14 && error <= 16) {
        atomic_store(&last_error, error);
        usleep(100000);
        find_coordinator(member);
        return;
    }
    if (error) fail("a heartbeat was answered with error %d", error);
    skip_text(&answer);
    skip_text(&answer);
    member->member_epoch = (int)take(&answer, 4);
    member->heartbeat_ns = now_ns();
}

static void put_share_fetch(Member *member) {
    Buffer *request = &member->request;
    request->length = 0;
    size_t start = begin_frame(request, SHARE_FETCH, 1);
    put_text(request, options.group);
    put_text(request, member->id);
    put_32(request, member->session_epoch);
    put_32(request, 500); /* wait at most, for at least, up to */
    put_32(request, 1);
    put_32(request, 8 << 20);
    put_32(request, options.records); /* records at most, and to a range */
    put_32(request, options.records);
    put_length(request, 1);
    put(request, topic_id, sizeof topic_id);
    put_length(request, (uint64_t)options.partitions);
    for (int partition = 0; partition < options.partitions; partition++) {
        uint64_t count = 0;
        for (int i = 0; i < member->range_count; i++) count += member->ranges[i].partition == partition;
        put_32(request, partition);
        put_length(request, count);
        for (int i = 0; i < member->range_count; i++) {
            if (member->ranges[i].partition != partition) continue;
            put_64(request, member->ranges[i].first);
            put_64(request, member->ranges[i].last);
            put_length(request, 1);
            put_8(request, ACCEPT);
            put_8(request, 0);
        }
        put_8(request, 0);
    }
    put_8(request, 0);
    put_length(request, 0);
    put_8(request, 0);
    end_frame(request, start);
}

static void take_partition(Member *member, Reader *answer) {
    int partition = (int)take(answer, 4);
    int error = (int)take(answer, 2);
    skip_text(answer);
    int acknowledge_error = (int)take(answer, 2);
    skip_text(answer);
    skip(answer, 8); /* the leader and its epoch */
    skip_tags(answer);
    uint64_t bytes = take_length(answer);
    skip(answer, bytes);
    atomic_fetch_add(&received_bytes, (int64_t)bytes);
    /* While a broker loads what a group had of a partition it refuses to read it, and
     * clients ask again; that it goes on too long is found by whoever counts. */
    if (error) atomic_store(&last_error, error);
    if (acknowledge_error)
        fail("partition %d: acknowledging was answered with error %d", partition, acknowledge_error);
    for (uint64_t count = take_length(answer); count; count--) {
        Range range = {.partition = partition};
        range.first = take(answer, 8);
        range.last = take(answer, 8);
        take(answer, 2);
        skip_tags(answer);
        if (member->range_count == RANGES_MAX) fail("too many ranges in one answer");
        member->ranges[member->range_count++] = range;
    }
    skip_tags(answer);
}

/* How many messages the request before acknowledged. */
static int64_t fetch(Member *member) {
    int64_t count = 0;
    for (int i = 0; i < member->range_count; i++)
        count += member->ranges[i].last - member->ranges[i].first + 1;
    put_share_fetch(member);
    Reader answer = call(member);
    take(&answer, 4);
    int error = (int)take(&answer, 2);
    if (error == SESSION_NOT_FOUND && !count) {
        member->session_epoch = 0;
        return 0;
    }
    if (error) fail("a share fetch was answered with error %d", error);
    skip_text(&answer);
    take(&answer, 4);
    member->session_epoch++;
    member->range_count = 0;
    for (uint64_t topics = take_length(&answer); topics; topics--) {
        skip(&answer, sizeof topic_id);
        for (uint64_t partitions = take_length(&answer); partitions; partitions--)
            take_partition(member, &answer);
        skip_tags(&answer);
    }
    return count;
}

static void *work(void *argument) {
    Member *member = argument;
    find_coordinator(member);
    while (!member->member_epoch) heartbeat(member);
    /* The clock starts when every member holds its first messages. */
    while (!member->range_count) fetch(member);
    pthread_barrier_wait(&joined);
    pthread_barrier_wait(&joined);
    while (atomic_load(&acknowledged) < options.messages) {
        atomic_fetch_add(&acknowledged, fetch(member));
        if (now_ns() - member->heartbeat_ns > HEARTBEAT_NS) heartbeat(member);
    }
    return NULL;
}

/* Whoever waits for the members looks at the clock for them. */
static void *watch(void *unused) {
    (void)unused;
    for (int64_t before = -1, now; (now = atomic_load(&acknowledged)) != before; before = now)
        sleep(STUCK_SECONDS);
    fail("the group is stuck; the last error was %d", atomic_load(&last_error));
}

void raw_share(void) {
    if (strlen(options.topic_id) != 32) fail("--topic-id needs 32 hexadecimal digits");
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (sscanf(options.topic_id + 2 * i, "%2x", &byte) != 1) fail("--topic-id is not hexadecimal");
        topic_id[i] = (uint8_t)byte;
    }
    if (!options.records) options.records = 500;
    Member *members = calloc((size_t)options.connections, sizeof *members);
    pthread_t *threads = calloc((size_t)options.connections, sizeof *threads);
    pthread_barrier_init(&joined, NULL, (unsigned)options.connections + 1);
    for (int i = 0; i < options.connections; i++) {
        members[i].socket = connect_to_broker();
        /* Kafka's clients call themselves by a UUID in this alphabet. */
        snprintf(members[i].id, sizeof members[i].id, "load%07dmember%04dA", getpid() % 10000000,
                 i % 10000);
        if (pthread_create(&threads[i], NULL, work, &members[i])) fail("no thread for a member");
    }
    pthread_t watching;
    if (pthread_create(&watching, NULL, watch, NULL)) fail("no thread to watch the members");
    pthread_barrier_wait(&joined);
    measure_begin();
    atomic_store(&received_bytes, 0);
    pthread_barrier_wait(&joined);
    /* Each member ends with its own thread; what they used is read before that. */
    while (atomic_load(&acknowledged) < options.messages) usleep(200);
    measure_end();
    result.messages = atomic_load(&acknowledged);
    result.bytes = atomic_load(&received_bytes);
}
