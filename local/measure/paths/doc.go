// Package paths plays every path of the protocol against DynamoDB, one at a
// time, and meters the calls and units that each takes. The benchmark prints
// what it finds; its test holds the number of calls to the design's table.
package paths
