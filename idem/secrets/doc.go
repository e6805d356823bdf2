// Package secrets digests the values and the inputs of an operation with a secret (HMAC-SHA256, RFC
// 2104). A plain digest of something short or predictable, such as an order number, can be found by
// trying all of them; one with a secret cannot, by nobody who reads the table, its stream, a backup
// or a log of ids without having the secret.
//
//	var Charge = idem.Operation{Name: "charge", Secrets: secrets.New(key)}
//
// Read the key from AWS Secrets Manager or the like when the process starts: at least 16 random
// bytes, better 32. One that is missing or shorter is a mistake, which every use of the operation
// reports. An engine without such an operation links nothing of this package and makes no call
// for it.
//
// The ids of records, the fingerprints in them, and what has the id with it have no other digest of
// value and input then: parts of results, changes from outside, messages of the outbox, shadow. The token
// that is sent to a provider is made of the id. The tenant, the name of the operation, results,
// errors, references and names of steps are as without secrets: package kmsseal and the like are
// for results. Anyone who has the secret and reads the table can try values.
//
// # The register
//
// A record that was made under another secret is not found, and its key would run again. So each
// operation has a register in the store, one item: check values of the secrets that its records
// may be under, in the order in which they came into use. Nobody can find a secret from its check
// value. A process reads the register before its first claim, and again after an hour. The
// first one makes it; one with a newer secret enters that, if it has all those that are there. A process
// that does not have a secret that records may be under, or whose own was retired, runs nothing:
// its calls give an error that matches [idem.ErrStoreUnavailable], over HTTP a 503, and write
// nothing. That is so for a wrong secret, and for a list from which one was dropped. It is not so
// for an operation whose Secrets are left out altogether: that asks no register. To go
// back to no secret, use [StillPlain] with all of them.
//
// Never delete a register: what is recorded under former secrets would be forgotten.
// In DynamoDB a register has the partition key "#<operation>#", which a policy with
// dynamodb:LeadingKeys must allow too: it belongs to all tenants.
//
// An operation with secrets fails closed also where [idem.Operation].OnStoreFailure says otherwise, as
// long as the register could not be read, or a mark could not be put, and wherever its process has
// more than one secret: the retry may meet a process with another one as current, which sends the
// provider another token.
//
// # Rotation
//
// A key whose record lies under a former secret stays there as long as that record lives: it is
// replayed, taken over, resolved and ended there, with the fingerprint and the token as they were.
// One under which nothing was executed, as is left where a claim was taken back, counts as none.
// A key without a record gets a mark in the place where a process with the former secret would
// make one, and is then claimed under the current secret. Who finds a mark, by the condition of
// its own claim, goes where it leads. So processes with the one and with the other as current run beside
// each other, and each key runs once. Who finds a mark that leads under a secret that it does not
// have, runs nothing; therefore give a new secret to all processes before any makes it the current one:
//
//  1. secrets.New(old, next): deploy everywhere. Nothing changes.
//  2. secrets.New(next, old): deploy everywhere. Going back to 1 is safe, for a week.
//  3. Wait until no record under the old secret lives: the longest retention, and until open
//     questions are resolved.
//  4. idemctl secrets retire --operation charge. It looks at all records, and refuses while one may
//     be live, or a process may still have the old secret as its current one.
//  5. secrets.New(next): deploy. Destroy the old secret.
//
// Without step 1 nothing runs twice, unless the operation fails open, but keys that have moved get
// errors from the processes without the new secret until these are gone. A second rotation can begin before the first has ended.
// A process whose current secret was replaced more than a week ago runs nothing; marks are kept
// for a day longer than that.
//
// An operation that has run without secrets goes the same way, with [StillPlain] in step 1 and
// [AfterPlain] from step 2 on; idemctl names what is retired plain. A process with neither, of
// before step 1, finds marks but cannot follow them: let none run for longer than a week
// after step 2. Until it is retired the table has plain digests, also of new keys: as marks.
// [New] for an operation that has such records overlooks them.
//
// # The price
//
// With one secret in the register: one read unit for each process and hour, and no call more than
// without. While a former one is in it: a write unit more for each first execution and each
// replay, for the mark or what stands in its place; for a replay of what lies under the former
// one none. A token of a key that is executed again after its retention, or after attempts that
// executed nothing, is another one if the secret was changed in between. Where a handler runs
// without a claim, its token is that of the secret under which its process would make the record:
// while processes with different current secrets run beside each other, two handlers of a key in
// atomic mode, of which one commits, may send different tokens, and so may a call in shadow and its
// retry. A shadow looks under the current secret alone: it tells a duplicate of what ran
// under a former one as a first execution.
package secrets
