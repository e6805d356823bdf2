// Package crash holds the matrix of crashes: operations with steps of both kinds,
// a transaction and compensations, killed before and after each of their calls to
// the store, and with each request and each reply lost, then retried to the end.
// What becomes of each cell is in testdata, and in the README of package idem. So do
// requests that are accepted for later: their acceptance, their message's way to the
// worker, the worker's claim and its outcome.
//
// The matrix runs in process, over a store whose every call is one point, and on
// DynamoDB Local, where every request on the wire is one.
package crash
