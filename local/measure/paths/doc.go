// Package paths plays every path of the protocol against DynamoDB, one at a time, and meters
// the calls and units that each takes. Its test compares them with infra/cost/measured.json,
// from which the cost of the table is computed.
package paths
