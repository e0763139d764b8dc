// Package schemaregistry decodes Avro values of Kafka records to JSON. Schemas come from a registry with the API of
// Confluent's: its own, Apicurio's (under /apis/ccompat/v7) or Karapace.
//
// A value has Confluent's wire format: a zero byte, the id of the writer's schema in four bytes, and Avro's binary
// encoding. The schema of an id never changes, so it is read once. An id that the registry doesn't have is asked for
// again after a minute.
//
// # JSON of Avro's types
//
//	null, boolean, int, long        as they are
//	float, double                   numbers; a value that isn't finite can't be used
//	string, enum, uuid              text
//	bytes, fixed                    text, in base64
//	array, map, record              list, object
//	union                           the value of its branch
//	decimal                         a number with all digits of its scale
//	date                            text, 2026-11-30
//	time-millis, time-micros        text, 08:30:00.125
//	timestamp-millis, -micros, ...  text as in RFC 3339, in UTC
//	local-timestamp-...             the same without a zone
//	duration                        an object of months, days and milliseconds
package schemaregistry
