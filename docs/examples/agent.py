#!/usr/bin/env python3
"""A Waybill agent that charges cards, in memory (the contract: docs/guides/agents.md; Debian: python3-confluent-kafka)."""
import argparse, inspect, json, os, signal, sys, time
from datetime import datetime, timezone
from confluent_kafka import Consumer, KafkaException, Producer

charges, parts, undone = {}, {}, set()  # by idempotency key; a real service keeps them with its effects


class Rejected(Exception):
    """Nothing happened, and nothing will under this key: whenever the request comes again it is rejected again."""


def charge(key, body):
    if key in undone:
        raise Rejected("it was undone before it arrived")
    if body["amount"] <= 0:
        raise Rejected("the amount must be positive")
    return charges.setdefault(key, {"charge": "ch_%d" % (len(charges) + 1)})


def refund(key, body):
    key = body["undo_of"]["idempotency_key"]
    undone.add(key)
    return {"refunded": charges.pop(key, None) is not None}  # undoing what never happened succeeds


def status(key, body):
    """What became of a charge. Late requests are skipped, and one is worked on at a time, so a key without a charge has no effect."""
    found = charges.get(body["check_of"]["idempotency_key"])
    return {"outcome": "completed", "output": found} if found else {"outcome": "none"}


def transfer(key, body):
    """Takes long, part by part. It yields its progress, and continues where an earlier attempt stopped."""
    while parts.setdefault(key, 0) < body["parts"]:
        time.sleep(body.get("seconds", 1))
        parts[key] += 1
        yield {"parts": parts[key]}
    return {"parts": parts[key]}


OPERATIONS = {"charge": charge, "refund": refund, "status": status, "transfer": transfer}


class Over(Exception):
    """The attempt is over: nothing more is sent."""


def reporter(producer, topic, key, headers, left, heartbeat):
    """Sends progress, without waiting for the broker, and a little less often than the scheduler records it."""
    sent, acknowledged = -10.0, time.monotonic()

    def delivered(err, _):
        nonlocal acknowledged
        acknowledged = acknowledged if err else time.monotonic()

    def report(value):
        nonlocal sent
        producer.poll(0)
        now = time.monotonic()
        if left() <= 0 or heartbeat and now - acknowledged > heartbeat:
            raise Over()
        if now - sent >= (heartbeat * 0.4 or 10):
            sent = now
            try:
                producer.produce(topic, json.dumps(value), key, headers=headers, on_delivery=delivered)
            except (BufferError, KafkaException) as why:  # the next report says more
                print("progress not sent: %s" % why, file=sys.stderr)
            producer.poll(0)
    return report


def handle(operation, key, value, report):
    """Does one request: (outcome, output or error object)."""
    try:
        if operation not in OPERATIONS:
            raise Rejected("no operation " + operation)
        output = OPERATIONS[operation](key, json.loads(value))
        while inspect.isgenerator(output):
            try:
                report(next(output))
            except StopIteration as end:
                output = end.value
        return "completed", output
    except Over:
        raise
    except Rejected as why:
        return "rejected", {"code": "rejected", "message": str(why)}
    except Exception as why:  # the effect is unknown, so no ce_effect
        return "failed", {"code": "failed", "message": repr(why)}


def reply(producer, topic, key, headers, body, left):
    """Sends until acknowledged. When the time is over it takes back what was not sent."""
    acknowledged = []
    while not acknowledged and left() > 0:
        try:
            producer.produce(topic, json.dumps(body), key, headers=headers,
                             on_delivery=lambda err, _: err or acknowledged.append(True))
        except (BufferError, KafkaException) as why:  # the queue is full, or the reply is too large
            print("reply not sent: %s" % why, file=sys.stderr)
            time.sleep(0.1)
        if producer.flush(max(left(), 0)) > 0:
            producer.purge()


def serve(m, producer, replies):
    headers = {k: v.decode() for k, v in m.headers() or []}
    complete_by = datetime.fromisoformat(headers["ce_completeby"].replace("Z", "+00:00"))
    left = lambda: (complete_by - datetime.now(timezone.utc)).total_seconds()
    if left() > 0:  # else the scheduler has given up
        as_outcome = lambda outcome: {"ce_request": headers["ce_request"], "ce_outcome": outcome}
        report = reporter(producer, replies, m.key(), as_outcome("progress"), left, float(headers.get("ce_heartbeat", 0)))
        try:
            outcome, body = handle(headers["ce_operation"], headers["ce_idempotencykey"], m.value(), report)
            reply(producer, replies, m.key(), as_outcome(outcome), body, left)
        except Over:
            producer.purge()


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--brokers", default=os.environ.get("WAYBILL_BROKERS", "localhost:9092"))
    flags.add_argument("--agent", required=True)
    flags.add_argument("--namespace", default=os.environ.get("WAYBILL_NAMESPACE", "waybill."))
    args = flags.parse_args()
    producer = Producer({"bootstrap.servers": args.brokers, "partitioner": "murmur2_random", "acks": "all"})
    consumer = Consumer({"bootstrap.servers": args.brokers, "group.id": args.namespace + "agent." + args.agent,
                         "isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([args.namespace + "requests." + args.agent])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        while True:
            m = consumer.poll(1.0)
            if m is None or m.error():
                if m: print(m.error(), file=sys.stderr)
                continue
            try:
                serve(m, producer, args.namespace + "replies")
            except (KeyError, ValueError, TypeError, AttributeError) as why:
                print("offset %d of partition %d is no request: %r" % (m.offset(), m.partition(), why), file=sys.stderr)
            try:
                consumer.commit(m, asynchronous=False)  # not before: a crash up to here repeats the request
            except KafkaException as why:  # the brokers are away, or the partition is another's: it may come again
                print("offset %d of partition %d is not committed: %s" % (m.offset(), m.partition(), why), file=sys.stderr)
    finally:
        consumer.close()
