// Package limit bounds what each tenant may have of an operation at once, and begin in a second.
//
//	var Export = idem.Operation{
//		Name: "export", Repeat: idem.Repeatable,
//		Limit: limit.PerTenant{Open: 10, New: 5},
//	}
//
// A call over a bound gets [idem.ErrTooMany], which is 429 with Retry-After over HTTP, and a message
// is returned to its queue. Nothing is executed, and nothing is recorded of its key. A replay, a key
// in flight, an unknown outcome and a reused key are answered as ever, also while the limit is full.
// What was released is run again only where there is room, accepted work
// too.
//
// A key is open while its record is in progress, unknown or pending. Its place is taken before it is
// claimed and given back once its record is known to be closed. So a claim whose process died, and an
// outcome that nobody knows, keep their place; a takeover goes on with it.
//
// # What holds
//
// No more keys are open at once than Open says, whatever processes do, and whichever requests or
// replies are lost or late. The exceptions are:
//
//   - Keys that were opened without the limit, by processes that do not have it yet or before Open
//     was lowered. They are open, and count from the next attempt on.
//   - A record that a sweep of package reconcile parks after it was released, which happens where the
//     operation has been declared not repeatable since, or has steps.
//   - A claim that AWS takes late, up to 15 minutes, when its record has been deleted: nothing
//     runs under it.
//
// A place that is not given back, because its process died or the table did not answer, is found when
// all are taken. Then one of the refused calls looks at up to 16 records, once a second at most, those
// that come after the ones of the look before. It gives back the places of records that are closed or
// gone. One that was taken within the time of a claim ([idem.Options].ClaimBudget, a minute in idemtest)
// is left to a later look. A call that might still be about to claim such a record is kept from that
// first, by a write that changes the record, or makes one that is released: that call finds it and asks
// for a place anew. The place of a call that took an outcome for expired stays until the outcome has
// expired by the clock of the call that looks too. So no clock decides whether a place is free. A
// lapsed claim of a repeatable operation is released by the same write, unless a sweep tells people
// of it ([idem.WatchAlways]).
//
// New counts by the second of each caller's clock, and a call that then gets no claim counts too.
// Between two seconds, twice as many keys may be new within one; where clocks differ by d, as many
// again for each second of d.
//
// # What it costs
//
// With Open, a first execution makes three calls more: a read of the record, which all calls of
// the operation begin with, and two writes of the item that has the places, which is billed by its
// size: one write unit each for up to 16 open keys, and one more for each 19 further ones. With New
// alone it is the read and one write. A replay or a duplicate is a read in place of a failed write, and
// so costs less than without a limit. A call that is refused is a read and a failed write of the item,
// billed by its size too.
// One item takes 1,000 write units a second: no more than 500 executions a second for a tenant's
// operation, and fewer where many are open.
//
// The item stays in the table, with about 100 bytes for each tenant and operation.
//
// A limit does not go together with [idem.FailOpen]. One on open keys has no meaning in atomic mode,
// which opens none. In shadow nothing is refused for it. The store must keep places
// ([protocol.Places]), as dynamostore and memstore do.
package limit
