"""The panels of the dashboard, row by row, in PromQL.

A panel names its expressions and a unit; where it lies follows from its place here.
"""

from __future__ import annotations

from typing import NamedTuple

HERE = 'job="$job", instance=~"$instance"'
TOPIC = f'{HERE}, topic=~"$topic"'
GROUP = f'{TOPIC}, group=~"$group"'


class Panel(NamedTuple):
    title: str
    # Expression and legend, one for each set of lines.
    lines: tuple[tuple[str, str], ...]
    unit: str = "short"
    description: str = ""
    kind: str = "timeseries"
    stacked: bool = False


def rate(name: str, selector: str, by: str) -> str:
    return f"sum by ({by}) (rate({name}{{{selector}}}[$__rate_interval]))"


def quantile(share: float, name: str, selector: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {rate(f'{name}_bucket', selector, labels)})"


def gauge(name: str, selector: str, by: str, how: str = "sum") -> str:
    return f"{how} by ({by}) ({name}{{{selector}}})"


def waits(name: str) -> tuple[tuple[str, str], ...]:
    """Three quantiles of a histogram, for each group on each topic."""
    return tuple(
        (
            quantile(share, name, GROUP, "group, topic"),
            f"p{share * 100:.0f}, {{{{group}}}} on {{{{topic}}}}",
        )
        for share in (0.5, 0.95, 0.99)
    )


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Overview",
        (
            Panel(
                "Nodes",
                ((f"count(headrace_build_info{{{HERE}}})", "up"),),
                kind="stat",
                description="Nodes that answer.",
            ),
            Panel(
                "Messages in",
                (
                    (
                        f"sum(rate(headrace_topic_in_messages_total{{{TOPIC}}}[$__rate_interval]))",
                        "",
                    ),
                ),
                "cps",
                kind="stat",
            ),
            Panel(
                "Messages out",
                (
                    (
                        f"sum(rate(headrace_topic_out_messages_total{{{TOPIC}}}[$__rate_interval]))",
                        "",
                    ),
                ),
                "cps",
                kind="stat",
            ),
            Panel(
                "Worst lag",
                ((f"max(headrace_group_lag_seconds{{{GROUP}}})", ""),),
                "s",
                kind="stat",
                description="The longest that a message has waited for a group.",
            ),
            Panel(
                "Dead letters",
                ((f"sum(headrace_dead_letters{{{TOPIC}}})", ""),),
                kind="stat",
                description="Dead letters that wait for somebody.",
            ),
            Panel(
                "Free disk",
                ((f"min(headrace_disk_free_bytes{{{HERE}}})", ""),),
                "bytes",
                kind="stat",
            ),
        ),
    ),
    (
        "Traffic",
        (
            Panel(
                "Messages in, by topic",
                ((rate("headrace_topic_in_messages_total", TOPIC, "topic"), "{{topic}}"),),
                "cps",
            ),
            Panel(
                "Messages out, by topic",
                ((rate("headrace_topic_out_messages_total", TOPIC, "topic"), "{{topic}}"),),
                "cps",
            ),
            Panel(
                "Bytes, by door",
                (
                    (rate("headrace_topic_in_bytes_total", TOPIC, "door"), "in, {{door}}"),
                    (rate("headrace_topic_out_bytes_total", TOPIC, "door"), "out, {{door}}"),
                ),
                "Bps",
            ),
        ),
    ),
    (
        "Requests",
        (
            Panel(
                "Requests, by API",
                (
                    (
                        rate("headrace_request_duration_seconds_count", HERE, "door, api"),
                        "{{door}} {{api}}",
                    ),
                ),
                "reqps",
            ),
            Panel(
                "p99 latency, by API",
                (
                    (
                        quantile(0.99, "headrace_request_duration_seconds", HERE, "door, api"),
                        "{{door}} {{api}}",
                    ),
                ),
                "s",
                "Long polls take as long as they wait.",
            ),
            Panel(
                "Errors, by code",
                (
                    (
                        rate("headrace_request_errors_total", HERE, "door, api, code"),
                        "{{door}} {{api}} {{code}}",
                    ),
                    (
                        rate("headrace_connections_cut_total", HERE, "door, reason"),
                        "{{door}} cut: {{reason}}",
                    ),
                ),
                "cps",
            ),
            Panel(
                "Connections",
                ((gauge("headrace_connections", HERE, "door"), "{{door}}"),),
                stacked=True,
            ),
        ),
    ),
    (
        "Groups",
        (
            Panel(
                "Lag in messages",
                (
                    (
                        gauge("headrace_group_lag_messages", GROUP, "group, topic"),
                        "{{group}} on {{topic}}",
                    ),
                ),
            ),
            Panel(
                "Lag in seconds",
                (
                    (
                        gauge("headrace_group_lag_seconds", GROUP, "group, topic", "max"),
                        "{{group}} on {{topic}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Speed of streams and Spark queries",
                (
                    (
                        "sum by (group, topic, kind) "
                        f"(deriv(headrace_group_position{{{GROUP}}}[5m]))",
                        "{{kind}} {{group}} on {{topic}}",
                    ),
                ),
                "cps",
                "How fast their committed positions move.",
            ),
            Panel(
                "Since the last commit",
                (
                    (
                        gauge("headrace_group_commit_age_seconds", GROUP, "group, topic", "min"),
                        "{{group}} on {{topic}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Rows of Spark's sinks",
                ((rate("headrace_spark_sink_rows_total", HERE, "sink"), "{{sink}}"),),
                "cps",
                "Of those that write exactly once, as they commit.",
            ),
            Panel(
                "Batches of Spark's sinks",
                ((rate("headrace_spark_sink_batches_total", HERE, "sink"), "{{sink}}"),),
                "cps",
                "A sink that stands still while its source moves is stuck.",
            ),
        ),
    ),
    (
        "Queues",
        (
            Panel(
                "Messages, by state",
                ((gauge("headrace_queue_messages", GROUP, "state"), "{{state}}"),),
                stacked=True,
            ),
            Panel(
                "Ready, by lane",
                (
                    (
                        gauge("headrace_queue_messages", f'{GROUP}, state="ready"', "lane"),
                        "{{lane}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Oldest ready message, by lane",
                ((gauge("headrace_queue_oldest_seconds", GROUP, "lane", "max"), "{{lane}}"),),
                "s",
            ),
            Panel(
                "From publish to lease",
                waits("headrace_publish_to_lease_seconds"),
                "s",
                "How long messages wait for a consumer: since they were published, or came due.",
            ),
            Panel(
                "From publish to ack",
                waits("headrace_publish_to_ack_seconds"),
                "s",
                "How long it takes until messages are done, retries included.",
            ),
            Panel(
                "Deliveries and what became of them",
                (
                    (rate("headrace_queue_deliveries_total", GROUP, "job"), "delivered"),
                    (
                        rate("headrace_queue_redeliveries_total", GROUP, "job"),
                        "not for the first time",
                    ),
                    (rate("headrace_queue_acks_total", GROUP, "job"), "acked"),
                    (rate("headrace_queue_nacks_total", GROUP, "job"), "nacked"),
                    (rate("headrace_queue_lease_expirations_total", GROUP, "job"), "lease ended"),
                    (
                        rate("headrace_queue_stale_receipts_total", GROUP, "job"),
                        "too late",
                    ),
                    (rate("headrace_queue_dead_lettered_total", GROUP, "job"), "dead-lettered"),
                    (rate("headrace_queue_expired_total", GROUP, "job"), "expired"),
                    (rate("headrace_queue_cancelled_total", GROUP, "job"), "cancelled"),
                ),
                "cps",
            ),
            Panel(
                "Delayed messages that came to an end",
                (
                    (
                        rate("headrace_delayed_ended_total", TOPIC, "topic, outcome"),
                        "{{outcome}}, {{topic}}",
                    ),
                ),
                "cps",
            ),
            Panel(
                "Dead letters",
                (
                    (gauge("headrace_dead_letters", TOPIC, "topic"), "{{topic}}"),
                    (
                        rate("headrace_dead_letters_redriven_total", TOPIC, "topic"),
                        "redriven, {{topic}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Transactions",
        (
            Panel(
                "Open",
                ((gauge("headrace_transactions", HERE, "state"), "{{state}}"),),
            ),
            Panel(
                "Ended",
                ((rate("headrace_transactions_ended_total", HERE, "outcome"), "{{outcome}}"),),
                "cps",
            ),
            Panel(
                "What holds readers of committed records",
                (
                    (
                        gauge(
                            "headrace_stable_offset_held_seconds",
                            TOPIC,
                            "topic, partition, transactional_id",
                            "max",
                        ),
                        "{{transactional_id}} on {{topic}}:{{partition}}",
                    ),
                    (f"max(headrace_transaction_oldest_seconds{{{HERE}}})", "the oldest"),
                ),
                "s",
            ),
            Panel(
                "Undecided messages",
                ((gauge("headrace_topic_undecided_messages", TOPIC, "topic"), "{{topic}}"),),
            ),
        ),
    ),
    (
        "Storage",
        (
            Panel(
                "Bytes on disk",
                ((gauge("headrace_topic_size_bytes", TOPIC, "topic"), "{{topic}}"),),
                "bytes",
                stacked=True,
            ),
            Panel(
                "Segments and partitions",
                (
                    (gauge("headrace_topic_segments", TOPIC, "job"), "segments"),
                    (gauge("headrace_topic_partitions", TOPIC, "job"), "partitions"),
                    (gauge("headrace_partitions_stopped", HERE, "job"), "stopped"),
                    (gauge("headrace_batches_unreadable", HERE, "job"), "batches skipped"),
                ),
            ),
            Panel(
                "Free disk",
                (
                    (gauge("headrace_disk_free_bytes", HERE, "instance"), "{{instance}}"),
                    (gauge("headrace_disk_floor_bytes", HERE, "instance"), "floor, {{instance}}"),
                ),
                "bytes",
            ),
            Panel(
                "Syncs",
                (
                    (quantile(0.5, "headrace_sync_duration_seconds", HERE), "p50"),
                    (quantile(0.99, "headrace_sync_duration_seconds", HERE), "p99"),
                ),
                "s",
            ),
        ),
    ),
    (
        "Node",
        (
            Panel(
                "Event-loop lag",
                (
                    (quantile(0.5, "headrace_event_loop_lag_seconds", HERE), "p50"),
                    (quantile(0.99, "headrace_event_loop_lag_seconds", HERE), "p99"),
                ),
                "s",
            ),
            Panel(
                "CPU",
                ((rate("process_cpu_seconds_total", HERE, "instance"), "{{instance}}"),),
                "percentunit",
            ),
            Panel(
                "Memory",
                (
                    (gauge("process_resident_memory_bytes", HERE, "instance"), "{{instance}}"),
                    (gauge("headrace_held_bytes", HERE, "what"), "for clients: {{what}}"),
                ),
                "bytes",
            ),
            Panel(
                "Open files and connections",
                (
                    (gauge("process_open_fds", HERE, "instance"), "{{instance}}"),
                    (gauge("process_max_fds", HERE, "instance"), "most, {{instance}}"),
                ),
            ),
            Panel(
                "Time that a scrape takes",
                ((gauge("headrace_scrape_duration_seconds", HERE, "instance"), "{{instance}}"),),
                "s",
            ),
            Panel(
                "Up since",
                ((f"time() - process_start_time_seconds{{{HERE}}}", "{{instance}}"),),
                "s",
            ),
        ),
    ),
)
