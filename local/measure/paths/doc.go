// Package paths plays the paths of a call against DynamoDB, one at a time, and meters the calls
// and units that each takes: without messages and sweeps. Its test compares them with
// infra/cost/measured.json, from which the cost of the table is computed.
package paths
