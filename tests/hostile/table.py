"""Every attack, and how hard it is driven: a round, a pause, the next round.

An attack is a function of one of the modules beside this one; its name is its title."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tests.hostile import grpc_attacks, http_attacks, kafka_attacks, stalling
from tests.hostile.target import Target


class Attack(NamedTuple):
    run: Callable[[Target], Awaitable[None]]
    # Between two rounds.
    pause_seconds: float = 1.0
    # The longest that a round may take before it is given up.
    round_seconds: float = 30.0

    @property
    def name(self) -> str:
        return self.run.__name__


ATTACKS = (
    # Small on the wire, large in memory.
    Attack(kafka_attacks.compression_bombs),
    Attack(kafka_attacks.header_bombs),
    Attack(kafka_attacks.metadata_of_900_000_names),
    Attack(kafka_attacks.metadata_at_the_limit, 3),
    Attack(kafka_attacks.arrays_that_never_end, 5),
    Attack(kafka_attacks.arrays_at_their_limit),
    Attack(kafka_attacks.join_group_with_a_megabyte),
    Attack(kafka_attacks.catastrophic_patterns),
    Attack(http_attacks.deep_json, 3),
    Attack(http_attacks.many_values_in_one_body, 5),
    Attack(http_attacks.one_topic_named_200_000_times, 3),
    # No requests at all.
    Attack(kafka_attacks.bad_frames),
    Attack(kafka_attacks.names_that_are_no_text),
    Attack(http_attacks.json_that_is_no_text),
    Attack(http_attacks.sockets_that_talk_nonsense),
    Attack(http_attacks.heads_that_never_end),
    Attack(http_attacks.bodies_that_never_end, 5),
    Attack(http_attacks.fragments_without_end, 5),
    Attack(http_attacks.fragments_of_a_crowd, 5),
    Attack(http_attacks.sockets_with_frames_of_nothing, 5),
    Attack(grpc_attacks.no_http_at_all),
    Attack(grpc_attacks.streams_reset_at_once),
    Attack(grpc_attacks.settings_and_pings_without_end),
    Attack(grpc_attacks.headers_that_go_on),
    # Much is asked for, and nothing of it taken or ended.
    Attack(stalling.a_byte_now_and_then, round_seconds=150),
    Attack(kafka_attacks.pipelined_flood),
    Attack(kafka_attacks.readers_that_never_read),
    Attack(kafka_attacks.fetches_that_are_abandoned),
    Attack(kafka_attacks.fetch_sessions_that_are_dropped, 3),
    Attack(kafka_attacks.share_sessions_that_are_dropped),
    Attack(kafka_attacks.transactions_that_are_left, 3),
    Attack(kafka_attacks.topics_made_and_deleted, 2),
    Attack(kafka_attacks.topics_made_by_asking, 2),
    Attack(http_attacks.requests_by_the_thousand),
    Attack(http_attacks.answers_that_nobody_reads),
    Attack(http_attacks.leases_that_are_never_acked),
    Attack(http_attacks.leases_of_bombs),
    Attack(http_attacks.searches_through_bombs),
    Attack(http_attacks.polls_that_are_abandoned),
    Attack(http_attacks.messages_for_the_year_9999),
    Attack(http_attacks.sockets_that_never_read),
    Attack(grpc_attacks.streams_that_are_left),
    Attack(grpc_attacks.calls_without_a_request),
)
