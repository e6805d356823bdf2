// Package secrets digests the values and the inputs of an operation with a secret (HMAC-SHA256, RFC
// 2104). A plain digest of something short or predictable, such as an order number, can be found by
// trying all of them. A digest with a secret cannot be found so by a reader of the table, its stream,
// a backup or a log of ids who lacks the secret.
//
//	var Charge = idem.Operation{Name: "charge", Values: secrets.New(key)}
//
// Read the key from AWS Secrets Manager or the like when the process starts: at least 16 random
// bytes, better 32. One that is missing or shorter is a mistake, which every use of the operation
// reports. An engine without such an operation links nothing of this package and makes no call
// for it.
//
// The ids of records, their fingerprints, and all that contains an id have no other digest of value
// and input then: parts of results, changes from outside, messages of the outbox, shadow. The token
// that is sent to a provider is made of the id. The tenant, the name of the operation, results,
// errors, references and names of steps are as without a secret: package kmsseal is for results.
// Anyone who has the secret and reads the table can try values.
//
// # The check
//
// Under another secret a record is not found, and its key would run again. So the store has one
// record more for each operation, with the id "#<operation>#" and a check value, from which the
// secret cannot be found. A process reads it before its first claim, and again after an hour, for one read
// unit; the first process of all creates it. A process with a wrong secret runs nothing and writes
// nothing: its calls return an error that matches [idem.ErrStoreUnavailable] and says so, over HTTP
// a 503. Calls fail closed while the check record cannot be read, also where
// [idem.Operation].OnStoreFailure says otherwise.
//
// Never delete the check record: the next process creates it again, with a wrong secret too. It has
// no expiry, and idemctl neither lists nor forgets it. A policy with dynamodb:LeadingKeys must
// allow its id, for all tenants.
//
// Nothing is checked for an operation whose Values are left out altogether: its ids are those of
// plain digests, no record under the secret is found, and every key can run again. An operation in
// shadow checks nothing either: under a wrong secret it takes duplicates for first executions.
//
// # Another secret
//
// The secret of an operation cannot be changed, and an operation that has run without one cannot get
// one: its records would not be found. Use the new secret with a new operation name, such as
// "charge-2". A key that is recorded under the old name runs again under the new one, so that no key
// may come under both: send callers to the new name when they begin new keys, for example with a new
// version of the API, and keep the old operation until its Retention has passed since its last
// call and its open questions are resolved. Then destroy the old secret.
package secrets
