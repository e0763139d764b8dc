#!/usr/bin/python3
"""The shop: an application that knows nothing of Waybill. It writes orders to its topic, in Avro, as Confluent's
serializer does: its schema is in a registry.

    shop.py BROKERS REGISTRY TOPIC
"""

import json
import struct
import sys
import urllib.request

from confluent_kafka import Producer  # Debian: python3-confluent-kafka

SCHEMA = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["PLACED", "PAID"]}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "card", "type": ["null", "string"], "default": None},
        {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
            {"name": "sku", "type": "string"}, {"name": "qty", "type": "int"}]}}},
    ]}


def long(n):
    n, out = (n << 1) ^ (n >> 63), bytearray()
    while n > 0x7f:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    return bytes(out + bytes([n]))


def text(s):
    return long(len(s.encode())) + s.encode()


def encode(order):
    """Avro's binary encoding of an order."""
    cents = order["cents"].to_bytes(4, "big", signed=True)
    items = b"".join(text(sku) + long(qty) for sku, qty in order["items"])
    return (text(order["id"]) + long(["PLACED", "PAID"].index(order["status"])) + long(len(cents)) + cents + long(order["at"])
            + long(1) + text(order["card"]) + (long(len(order["items"])) + items if items else b"") + long(0))


def register(registry, subject):
    """Returns the id of the schema."""
    body = json.dumps({"schema": json.dumps(SCHEMA)}).encode()
    request = urllib.request.Request(f"{registry}/subjects/{subject}/versions", body, {"Content-Type": "application/vnd.schemaregistry.v1+json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["id"]


def main():
    brokers, registry, topic = sys.argv[1:]
    schema = register(registry, topic + "-value")
    producer = Producer({"bootstrap.servers": brokers})
    for number, status in [("1001", "PLACED"), ("1002", "PLACED"), ("1001", "PAID")]:
        order = {"id": number, "status": status, "cents": 1250, "at": 1795681800000, "card": "tok", "items": [("book", 1), ("pen", 2)]}
        producer.produce(topic, key=number, value=b"\0" + struct.pack(">I", schema) + encode(order), headers={"region": "eu"})
    producer.produce(topic, key="1003", value=b"an accident")
    if producer.flush(30) > 0:
        sys.exit("the brokers didn't answer")


main()
