"""Every route of the HTTP door, in the order in which a newcomer would want them."""

from __future__ import annotations

from headrace.server.http import (
    events,
    groups,
    letters,
    messages,
    node,
    queues,
    statistics,
    subscriptions,
    topics,
)
from headrace.server.http.route import Route
from headrace.wire.http import bodies as b
from headrace.wire.http import group_bodies as g

_LETTERS = "/topics/{topic}/dead-letters"
_MEMBER = "/groups/{group}/members/{member}"

ROUTES = (
    # The simplest way in and out.
    Route("POST", "/produce", messages.produce, "Publish one message", "simple",
          body=b.Produce, answer=b.Place),
    Route("GET", "/consume", messages.consume, "Read a partition from an offset on", "simple",
          query=b.ConsumeQuery, answer=b.ReadMessages,
          detail="`topic` may be left out where there is only one. `wait` is for up to 30 s."),
    Route("POST", "/subscribe", subscriptions.subscribe, "Join a stream group", "members",
          body=g.Subscribe, answer=g.Subscribed,
          detail="Partitions are shared by range. A member that is not heard of for 30 s is "
          "gone; heartbeat every 3 s, or poll."),
    Route("GET", _MEMBER, subscriptions.assignment, "What is assigned to a member", "members",
          answer=g.Subscribed),
    Route("POST", f"{_MEMBER}/heartbeat", subscriptions.heartbeat, "Stay a member", "members",
          body=g.MemberBody, answer=g.Subscribed),
    Route("POST", f"{_MEMBER}/poll", subscriptions.poll, "Read what is assigned", "members",
          body=g.Poll, answer=g.Polled),
    Route("POST", f"{_MEMBER}/commit", subscriptions.commit, "Commit positions", "members",
          body=g.CommitPositions, status=204),
    Route("PUT", f"{_MEMBER}/topics", subscriptions.change, "Read other topics", "members",
          body=g.ChangedSubscription, answer=g.Subscribed),
    Route("DELETE", _MEMBER, subscriptions.leave, "Leave a group", "members", status=204),
    # Topics.
    Route("POST", "/topics", topics.create, "Make a topic", "topics",
          body=b.NewTopic, answer=b.ShownTopic, status=201),
    Route("GET", "/topics", topics.list_all, "List topics", "topics",
          query=b.PageQuery, answer=b.Topics),
    Route("GET", "/topics/{topic}", topics.describe, "Describe a topic", "topics",
          answer=b.ShownTopic),
    Route("PATCH", "/topics/{topic}", topics.change, "Change a topic, or make it grow", "topics",
          body=b.ChangedTopic, answer=b.ShownTopic),
    Route("DELETE", "/topics/{topic}", topics.delete, "Delete a topic", "topics", status=204),
    # Messages.
    Route("POST", "/topics/{topic}/messages", messages.publish, "Publish one message or many",
          "messages", body=b.Publish, answer=b.Place | b.Places, raw_body=True,
          plain_body=b.PlainMessages,
          detail="A body of any other type than JSON is the value itself; what goes with it is "
          "given as parameters."),
    Route("POST", "/messages", messages.publish_together, "Publish to several topics, all or none",
          "messages", body=b.AddressedMessages, answer=b.AddressedPlaces,
          detail="`acks` are receipts that are acked in the same transaction: what a consumer "
          "makes of its messages is published exactly when they are done."),
    Route("GET", "/topics/{topic}/messages", messages.read, "Read a partition", "messages",
          query=b.MessagesQuery, answer=b.ReadMessages,
          detail="From an offset or a moment on. With `group`, the state of each message in it."),
    Route("GET", "/topics/{topic}/messages/{partition}/{offset}", messages.show,
          "Show one message", "messages", answer=b.ShownMessage,
          detail="With `Accept: application/octet-stream`, its value alone."),
    Route("GET", "/topics/{topic}/events", events.tail, "Tail a topic", "messages",
          query=b.EventsQuery, answer_type=events.EVENTS_TYPE),
    Route("GET", "/topics/{topic}/delayed", letters.list_delayed, "List delayed messages",
          "messages", query=b.PageQuery, answer=b.DelayedPage),
    Route("DELETE", "/topics/{topic}/delayed/{partition}/{offset}", letters.cancel,
          "Cancel a delayed message", "messages", answer=b.Cancelled),
    # Queues.
    Route("POST", "/queues/{group}/lease", queues.lease, "Lease messages", "queues",
          body=b.Lease, answer=b.Leased),
    Route("POST", "/messages/ack", queues.ack, "Done", "queues",
          body=b.Receipts, answer=b.Settled | b.SettledAll),
    Route("POST", "/messages/nack", queues.nack, "Try again later", "queues",
          body=b.Nack, answer=b.Settled | b.SettledAll),
    Route("POST", "/messages/reject", queues.reject, "To the dead letters", "queues",
          body=b.Reject, answer=b.Settled | b.SettledAll),
    Route("POST", "/messages/release", queues.release, "Give back at no cost", "queues",
          body=b.Receipts, answer=b.Settled | b.SettledAll),
    Route("POST", "/messages/visibility", queues.extend, "More time", "queues",
          body=b.Extend, answer=b.Settled | b.SettledAll),
    # Dead letters.
    Route("GET", _LETTERS, letters.list_letters, "List dead letters", "dead letters",
          query=b.LettersQuery, answer=b.LettersPage),
    Route("GET", f"{_LETTERS}/{{partition}}/{{offset}}", letters.show_letter,
          "Show a dead letter", "dead letters", answer=b.ShownLetter),
    Route("POST", f"{_LETTERS}/redrive", letters.redrive, "Send dead letters back",
          "dead letters", body=b.Redrive, answer=b.Redriven),
    Route("POST", f"{_LETTERS}/purge", letters.purge, "Delete dead letters", "dead letters",
          body=b.LetterChoice, answer=b.Purged),
    # Groups.
    Route("GET", "/groups", groups.list_all, "List groups", "groups",
          query=b.PageQuery, answer=g.Groups),
    Route("GET", "/groups/{group}", groups.describe, "Describe a group", "groups",
          answer=g.ShownGroup),
    Route("GET", "/groups/{group}/lag", groups.lag, "How far a group is behind", "groups",
          answer=g.GroupLag),
    Route("POST", "/groups/{group}/reset", groups.reset, "Move a stream group", "groups",
          body=g.ResetGroup, answer=g.GroupLag),
    Route("DELETE", "/groups/{group}", groups.delete, "Delete a group", "groups", status=204),
    # Statistics and the node.
    Route("GET", "/reliability/stats", statistics.reliability, "Deliveries and failures",
          "statistics", query=g.StatisticsQuery, answer=g.ReliabilityStatistics),
    Route("GET", "/delay/stats", statistics.delay, "What waits for its time", "statistics",
          query=g.StatisticsQuery, answer=g.DelayStatistics),
    Route("GET", "/priority/stats", statistics.priority, "How the lanes are served", "statistics",
          query=g.StatisticsQuery, answer=g.PriorityStatistics),
    Route("GET", "/health/live", node.live, "The process is there", "node", answer=g.Health),
    Route("GET", "/health/ready", node.ready, "It takes requests", "node", answer=g.Health),
)  # fmt: skip
