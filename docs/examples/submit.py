#!/usr/bin/env python3
"""Submits an order with confluent-kafka (Debian: python3-confluent-kafka), to what `waybill up --demo` runs."""
import json, os, sys
from confluent_kafka import Producer

brokers, namespace = os.environ.get("WAYBILL_BROKERS", "localhost:9092"), os.environ.get("WAYBILL_NAMESPACE", "waybill.")
producer = Producer({"bootstrap.servers": brokers, "partitioner": "murmur2_random"})
order = {"id": "o-3", "workflow": "order", "reply_to": "shop.orders",
         "input": {"items": [{"sku": "tea", "qty": 1}], "total": 4.5, "card": "tok", "address": "1 Harbour Road"}}
failed = []
producer.produce(namespace + "tasks", json.dumps(order), key=order["id"], on_delivery=lambda err, _: err and failed.append(err))
if producer.flush(30) or failed:  # it may have arrived: submit it again, under the same id
    sys.exit("the order may not have been written: %s" % (failed or "no answer from the brokers"))
