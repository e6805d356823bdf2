// Package limit bounds how many new keys each tenant may have of an operation in a window of time.
//
//	store, err := limit.Over(dynamostoreStore, map[string]limit.PerTenant{
//		"export": {Keys: 1000, Window: time.Minute},
//	})
//	engine, err := idem.New(store, nil)
//
// A call over the limit gets [idem.ErrLimitExceeded], which is 429 with Retry-After over HTTP, and a
// message is returned to its queue. Nothing has taken effect, and nothing is recorded of its key. A
// replay, a key in flight, an unknown outcome and a reused key are answered while the limit is
// exceeded too. What was released runs again, and accepted work runs.
//
// Where Window is the operation's Retention, the limit bounds what a tenant can make the table keep:
// about twice Keys records are within their retention at most. What is unknown, or waits for a worker,
// is kept until it has an outcome.
//
// # What counts
//
// A key counts where its record is made: when it has none, when that has expired, or when it was
// released without an effect and comes with another input. It is counted before the claim, in atomic
// mode before the commit, and for later before the acceptance. A count is never taken back. These
// count too:
//
//   - A claim that is then lost. Of first calls with one key at once, each may count.
//   - A count whose reply was lost, once more each time it is sent again.
//
// In shadow nothing counts, and nothing is refused.
//
// # What holds
//
// Of the calls within one window, no more than Keys make a record. Windows use the clock of the
// caller. So within any time as long as a window there may be twice as many around an edge between two
// windows, and three times as many where clocks differ by up to a window. A counter is kept for an hour
// after its window: a clock that is slow by more counts from zero.
//
// # What it costs
//
// A first execution makes two calls more: a read of the record, and a write of the window's counter,
// one unit each. A replay or a duplicate is a read in place of a failed write. A call over the limit is
// a read and a failed write of the counter. One item takes 1,000 write units a second, and so a tenant
// can begin no more keys of a limited operation than that. TTL deletes the counters.
//
// The store must be a [Counter], as dynamostore and memstore are.
package limit
