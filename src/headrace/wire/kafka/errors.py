"""Kafka's error codes: the names are Kafka's, the words are ours.

    ErrorCode.NOT_COORDINATOR              16, as it goes on the wire
    ErrorCode.NOT_COORDINATOR.retriable    whether a client may simply try again
    ErrorCode.NOT_COORDINATOR.description  for logs and for error messages on the wire

`retriable` is what Kafka's own client takes it to be; some of these also make a
client refresh its metadata first. Codes that we never send are here all the same,
because our client has to understand those of other brokers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    retriable: bool
    description: str

    def __new__(cls, code: int, description: str, retriable: bool = False) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.description = description
        member.retriable = retriable
        return member

    UNKNOWN_SERVER_ERROR = -1, "Something went wrong that no other code describes."
    NONE = 0, "All is well."
    OFFSET_OUT_OF_RANGE = 1, "The partition does not hold that offset."
    CORRUPT_MESSAGE = 2, "A batch fails its checksum or is not well formed.", True
    UNKNOWN_TOPIC_OR_PARTITION = 3, "There is no such topic or partition here.", True
    INVALID_FETCH_SIZE = 4, "The fetch asks for an impossible number of bytes."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", True
    NOT_LEADER_OR_FOLLOWER = 6, "This node does not serve the partition.", True
    REQUEST_TIMED_OUT = 7, "The work was not done in the time that was given.", True
    BROKER_NOT_AVAILABLE = 8, "That node is not up."
    REPLICA_NOT_AVAILABLE = 9, "This node has no copy of the partition.", True
    MESSAGE_TOO_LARGE = 10, "A batch is larger than the topic allows."
    STALE_CONTROLLER_EPOCH = 11, "The sender's controller has been replaced."
    OFFSET_METADATA_TOO_LARGE = 12, "The note beside a committed offset is too long."
    NETWORK_EXCEPTION = 13, "The connection was lost before the answer came.", True
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still reading its state.", True
    COORDINATOR_NOT_AVAILABLE = 15, "No coordinator is known yet.", True
    NOT_COORDINATOR = 16, "Another node coordinates this group or producer.", True
    INVALID_TOPIC_EXCEPTION = 17, "The topic's name is not a legal one."
    RECORD_LIST_TOO_LARGE = 18, "The batches together are larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, "Too few replicas are in sync to accept this.", True
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "Written, but on too few replicas.", True
    INVALID_REQUIRED_ACKS = 21, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, "The group has moved on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol with its group."
    INVALID_GROUP_ID = 24, "The group's name is not a legal one."
    UNKNOWN_MEMBER_ID = 25, "The group does not have that member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside the allowed range."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing: join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not allowed on this topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not allowed on this group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not allowed on this cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp is out of the allowed range."
    UNSUPPORTED_SASL_MECHANISM = 33, "That SASL mechanism is not offered."
    ILLEGAL_SASL_STATE = 34, "This request cannot be made at this stage of authentication."
    UNSUPPORTED_VERSION = 35, "That version of the API is not spoken here."
    TOPIC_ALREADY_EXISTS = 36, "There is a topic of that name."
    INVALID_PARTITIONS = 37, "The number of partitions is not possible."
    INVALID_REPLICATION_FACTOR = 38, "The number of replicas is not possible."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replicas cannot be placed like that."
    INVALID_CONFIG = 40, "A setting has a value that it cannot have."
    NOT_CONTROLLER = 41, "Another node is the controller.", True
    INVALID_REQUEST = 42, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The stored record format cannot do that."
    POLICY_VIOLATION = 44, "A policy of this cluster forbids it."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "A batch before this one is missing."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The batch was written before."
    INVALID_PRODUCER_EPOCH = 47, "A newer producer has taken over."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to that transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is longer than allowed."
    CONCURRENT_TRANSACTIONS = 51, "The transaction before this one is still ending.", True
    TRANSACTION_COORDINATOR_FENCED = 52, "The sender no longer coordinates transactions."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not allowed to use that transactional id."
    SECURITY_DISABLED = 54, "Access control is off here."
    OPERATION_NOT_ATTEMPTED = 55, "Something before it failed, so it was not tried."
    KAFKA_STORAGE_ERROR = 56, "The disk failed under the partition.", True
    LOG_DIR_NOT_FOUND = 57, "There is no such data directory."
    SASL_AUTHENTICATION_FAILED = 58, "The credentials are not right."
    UNKNOWN_PRODUCER_ID = 59, "Nothing is known of that producer any more."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition is being moved already."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are off here."
    DELEGATION_TOKEN_NOT_FOUND = 62, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The delegation token is somebody else's."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Not over this kind of connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not allowed on that delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "That kind of principal is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The fetch session is over.", True
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session expects another epoch.", True
    LISTENER_NOT_FOUND = 72, "The leader has no listener that matches this one.", True
    TOPIC_DELETION_DISABLED = 73, "Topics cannot be deleted here."
    FENCED_LEADER_EPOCH = 74, "The client's leader epoch is older than ours.", True
    UNKNOWN_LEADER_EPOCH = 75, "The client's leader epoch is newer than ours.", True
    UNSUPPORTED_COMPRESSION_TYPE = 76, "That compression is not allowed in this version."
    STALE_BROKER_EPOCH = 77, "The broker has registered anew since."
    OFFSET_NOT_AVAILABLE = 78, "The new leader does not know its high watermark yet.", True
    MEMBER_ID_REQUIRED = 79, "Join again with the member id of this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not up.", True
    GROUP_MAX_SIZE_REACHED = 81, "The group is full."
    FENCED_INSTANCE_ID = 82, "Another member has taken this instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica can lead the partition.", True
    ELECTION_NOT_NEEDED = 84, "The partition has the right leader.", True
    NO_REASSIGNMENT_IN_PROGRESS = 85, "The partition is not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is reading that topic."
    INVALID_RECORD = 87, "A record does not hold what its topic requires."
    UNSTABLE_OFFSET_COMMIT = 88, "A transaction is about to change these offsets.", True
    THROTTLING_QUOTA_EXCEEDED = 89, "Too many changes in too short a time.", True
    PRODUCER_FENCED = 90, "A newer producer uses this transactional id."
    RESOURCE_NOT_FOUND = 91, "There is nothing of that name."
    DUPLICATE_RESOURCE = 92, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The new credential does not meet the rules."
    INCONSISTENT_VOTER_SET = 94, "Sender and receiver disagree on who votes."
    INVALID_UPDATE_VERSION = 95, "The version of the update is not possible."
    FEATURE_UPDATE_FAILED = 96, "The features could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "A forwarded principal cannot be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The snapshot ends before that position."
    UNKNOWN_TOPIC_ID = 100, "No topic has that id.", True
    DUPLICATE_BROKER_REGISTRATION = 101, "A live broker has that id."
    BROKER_ID_NOT_REGISTERED = 102, "No broker has that id."
    INCONSISTENT_TOPIC_ID = 103, "The topic has another id here.", True
    INCONSISTENT_CLUSTER_ID = 104, "The request was meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "Nothing is known of that transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The session mixes names and ids of topics.", True
    INELIGIBLE_REPLICA = 107, "That replica may not join the in-sync set."
    NEW_LEADER_ELECTED = 108, "The change was made under a leader that is gone."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "That offset is no longer on the local disk."
    FENCED_MEMBER_EPOCH = 110, "The group knows the member by another epoch: join again."
    UNRELEASED_INSTANCE_ID = 111, "A live member has this instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The group does not have that assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch has moved on: try again with the new one."
    MISMATCHED_ENDPOINT_TYPE = 114, "This listener is for the other kind of request."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "That kind of endpoint is not known here."
    UNKNOWN_CONTROLLER_ID = 116, "No controller has that id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription has changed."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than allowed."
    INVALID_REGISTRATION = 119, "The registration cannot be accepted."
    TRANSACTION_ABORTABLE = 120, "The transaction must be aborted; the producer can go on."
    INVALID_RECORD_STATE = 121, "The record is not leased to this member."
    SHARE_SESSION_NOT_FOUND = 122, "The share session is over.", True
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session expects another epoch.", True
    FENCED_STATE_EPOCH = 124, "The share partition's state has a newer epoch."
    INVALID_VOTER_KEY = 125, "The voter's key is not this node's."
    DUPLICATE_VOTER = 126, "That node votes already."
    VOTER_NOT_FOUND = 127, "That node does not vote."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression cannot be read."
    REBOOTSTRAP_REQUIRED = 129, "Forget the metadata and start from the bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not possible."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology's epoch is not possible."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology's epoch is an old one."
    SHARE_SESSION_LIMIT_REACHED = 133, "There are too many share sessions.", True


_BY_CODE: Final = {int(member): member for member in ErrorCode}


def error_code(code: int) -> ErrorCode:
    """The member for a code off the wire. A code that we do not know, from a newer
    broker, is an unknown error and not a failure of ours."""
    return _BY_CODE.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
