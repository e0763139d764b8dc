#!/usr/bin/env python3
"""Submits an order with confluent-kafka (Debian: python3-confluent-kafka), to what `waybill up --demo` runs."""
import json
from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": "localhost:9092", "partitioner": "murmur2_random"})
order = {"id": "o-3", "workflow": "order", "reply_to": "shop.orders",
         "input": {"items": [{"sku": "tea", "qty": 1}], "total": 4.5, "card": "tok", "address": "1 Harbour Road"}}
producer.produce("waybill.tasks", json.dumps(order), key=order["id"])
producer.flush()
