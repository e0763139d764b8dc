// Package intake maps the records of a topic that exists already to submissions and signals. It is pure: a record and
// its decoded value go in, and a record for an inbox, a dead letter or nothing comes out.
//
//	YAML --Parse--> Definition --Compile--> Program --Map--> Result
//
// A Program is safe for concurrent use. For one record and one Definition the result is always the same, so a record that
// is mapped twice gives the same submission, which counts once.
package intake
